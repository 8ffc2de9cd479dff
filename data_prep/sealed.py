"""The form of a stored entry: a checksum, the size of a JSON header, the header with the entry's key, and raw bytes.

Used for decoded frames and for what a vision tower made of them. Nothing in an entry can be executed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

_N_DIGEST, _SIZE = 32, struct.Struct("<I")


class DamagedEntryError(ValueError):
    """An entry that is not, whole and unchanged, what was stored under its key."""


def seal(key: str, header: dict[str, Any], *body: bytes) -> bytes:
    """An entry of this key; `unseal` gives header and body back."""
    text = json.dumps({"key": key, **header}).encode()
    rest = b"".join((_SIZE.pack(len(text)), text, *body))
    return hashlib.sha256(rest).digest() + rest


def unseal(entry: bytes, key: str) -> tuple[dict[str, Any], memoryview]:
    """Header and body of an entry; `DamagedEntryError` unless it is, whole and unchanged, the one of this key."""
    rest = memoryview(entry)[_N_DIGEST:]
    if hashlib.sha256(rest).digest() != entry[:_N_DIGEST]:
        raise DamagedEntryError(f"entry {key}: checksum differs")
    at = _SIZE.size + _SIZE.unpack_from(rest)[0]
    header = json.loads(bytes(rest[_SIZE.size : at]))
    if header["key"] != key:
        raise DamagedEntryError(f"entry {key}: holds another entry, {header['key']}")
    return header, rest[at:]
