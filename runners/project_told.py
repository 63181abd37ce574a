"""How modes of `runners.project` tell their answer: on stdout, into --out, and as the picture of --tornado."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

from runners.exits import Mistake

ENDINGS = (".png", ".svg")


def reserve_all(options: Namespace) -> None:
    """Make sure that what will be written can be. Raises Mistake or StoreFault."""
    from runners.files import reserve

    if options.tornado is not None and options.tornado.suffix not in ENDINGS:
        raise Mistake(f"--tornado: expected a file ending in .png or .svg, got {options.tornado}")
    for path in (options.out, options.tornado):
        if path is not None:
            if path.is_dir():
                raise Mistake(f"expected a file to write, got the directory {path}")
            reserve(path)


def tell(options: Namespace, text: str, figure: Callable[[], Mapping[str, Any]]) -> int:
    """Write what was asked for and print the text; the exit code. figure: makes one picture, under any name."""
    from runners.files import put

    if options.tornado is not None:
        from reports.style import drawn

        pictures = drawn(figure)
        put(options.tornado, next(data for name, data in pictures.items() if name.endswith(options.tornado.suffix)))
    if options.out is not None:
        put(options.out, text)
    print(text, end="")
    return 0
