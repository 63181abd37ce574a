"""`python -m tests.golden.make [--only NAME …]` writes the golden answers as they are today."""

import argparse
import importlib
import importlib.util
from collections.abc import Collection

from tests.golden import Answer, write

HALVES = [name for name in ("tests.golden.models", "tests.golden.tables") if importlib.util.find_spec(name)]
MODULES = [importlib.import_module(name) for name in HALVES]
ANSWERS: dict[str, Answer] = {name: answer for module in MODULES for name, answer in module.ANSWERS.items()}
PLAIN: dict[str, Collection[str]] = {name: cases for module in MODULES for name, cases in module.PLAIN.items()}
TOLERANCES: dict[str, float] = {
    name: tolerance for module in MODULES for name, tolerance in getattr(module, "TOLERANCES", {}).items()
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=sorted(ANSWERS), default=sorted(ANSWERS), metavar="NAME")
    for name in parser.parse_args().only:
        write(name, ANSWERS[name](lambda _: True))
        print(f"tests/golden/{name}.csv")


if __name__ == "__main__":
    main()
