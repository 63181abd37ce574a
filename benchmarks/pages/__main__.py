"""All that is derived from published steps, made again by one command.

    python -m benchmarks.pages atlas                # from the kept tables: a minute or two
    python -m benchmarks.pages atlas --from DIR     # from the sources' files: counts models that are not counted yet

In this order: with --from the tables of steps, kernels and amounts (`runners.atlas import`); docs/atlas.md with its
figures; the factors of `runners.predict` and docs/predict.md, evaluated on families and devices left out. Run it in the
root of the checkout. It says how long each took; the first that fails ends it with its exit code.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

Main = Callable[[Sequence[str]], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """The script; its exit code: 0, or that of the command that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("atlas",), help="which pages: all that rest on published steps")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="where the sources' files are")
    options = parser.parse_args(arguments)
    for command, words in commands(options.source):
        began_s = time.perf_counter()
        code = command(words)
        print(f"{time.perf_counter() - began_s:6.1f} s  {command.__module__} {' '.join(words)}", flush=True)
        if code:
            return code
    return 0


def commands(source: Path | None) -> list[tuple[Main, list[str]]]:
    """Each command with its words, in their order. source: the folder of the sources' files, None without them."""
    import runners.atlas.command
    from benchmarks.pages import predict

    made: list[tuple[Main, list[str]]] = [
        (runners.atlas.command.main, ["page"]),
        (predict.main, ["--write", "docs/predict.md"]),
    ]
    return made if source is None else [(runners.atlas.command.main, ["import", "--from", str(source)]), *made]


if __name__ == "__main__":
    raise SystemExit(main())
