"""The child process in which a foreign chat template runs; see chat_template.py. Started by path, with Jinja alone.

Standard input: a line with the template and its limits, then a line for each conversation. Standard output: a line for
each, `{"text": ...}` or `{"error": ...}`. The environment is the one of `transformers.apply_chat_template`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any


def bound_memory(n_bytes: int) -> None:
    """Every later allocation fails beyond `n_bytes` of address space; raises where the system has no such limit."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes))


def compiled(text: str) -> Any:
    """The template in Jinja's sandbox, with what transformers puts at its disposal."""
    from jinja2 import TemplateError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def fail(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = as_json
    environment.globals.update(raise_exception=fail, strftime_now=lambda form: datetime.now().strftime(form))
    return environment.from_string(text)


def answers(order: dict[str, Any], lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """What becomes of each conversation."""
    template: Any = None
    for line in lines:
        try:
            if template is None:
                bound_memory(order["memory_bytes"])
                template = compiled(order["template"])  # constants are computed here
            text = template.render(**json.loads(line), **order["names"])
            yield {"text": text} if len(text) <= order["characters"] else {"error": f"{len(text)} characters"}
        except MemoryError:
            yield {"error": f"more than {order['memory_bytes']} bytes of memory"}
        except Exception as error:  # whatever a template does, or a system without the limit
            yield {"error": f"{type(error).__name__}: {error}"[:500]}


def main() -> None:
    """Serve until standard input ends."""
    for answer in answers(json.loads(sys.stdin.readline()), sys.stdin):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
