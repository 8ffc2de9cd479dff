"""Spoken sentences of known text, by espeak-ng where it is installed: the system's, or the package espeakng-loader.

pip install espeakng-loader && python -m examples.kitchen.hearing --speech --out runs/speech
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import importlib.util
from functools import cache
from typing import Any

import numpy as np

from proofreel.core import ConfigError

_SYNCHRONOUS, _UTF8, _RATE, _PITCH = 2, 1, 1, 3  # of speak_lib.h
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def library() -> tuple[str, str | None] | None:
    """The path of the library and of its voices (None: where the system keeps them); None where it is not installed."""
    if importlib.util.find_spec("espeakng_loader") is not None:
        loader: Any = importlib.import_module("espeakng_loader")
        return loader.get_library_path(), loader.get_data_path()
    found = ctypes.util.find_library("espeak-ng")
    return None if found is None else (found, None)


def speak(text: str, words_per_minute: int, pitch: int) -> tuple[np.ndarray, int]:
    """(samples in [-1, 1], their rate in hertz) of a sentence in American English.

    Args:
        text: what is said.
        words_per_minute: 80 to 450.
        pitch: 0 to 99; 50 is the voice's own.

    Raises:
        ConfigError: espeak-ng is not installed.
    """
    espeak, rate = _opened()
    parts: list[np.ndarray] = []

    def take(samples: Any, n: int, _events: Any) -> int:
        if samples and n > 0:
            parts.append(np.ctypeslib.as_array(samples, (n,)).copy())
        return 0

    callback = _CALLBACK(take)
    espeak.espeak_SetSynthCallback(callback)
    espeak.espeak_SetVoiceByName(b"en-us")
    espeak.espeak_SetParameter(_RATE, words_per_minute, 0)
    espeak.espeak_SetParameter(_PITCH, pitch, 0)
    data = text.encode() + b"\0"
    espeak.espeak_Synth(data, ctypes.c_size_t(len(data)), 0, 1, 0, _UTF8, None, None)
    return np.concatenate(parts) / 32768.0, rate


@cache
def _opened() -> tuple[Any, int]:
    if (found := library()) is None:
        raise ConfigError(
            "espeak-ng: speaks the sentences, got no such library; pip install espeakng-loader, or the system's package"
        )
    path, voices = found
    espeak = ctypes.CDLL(path)
    rate = espeak.espeak_Initialize(_SYNCHRONOUS, 0, None if voices is None else voices.encode(), 0)
    return espeak, int(rate)
