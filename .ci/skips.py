"""Fails on any skipped test that tests/expected_skips.txt does not name, with its reason: skips hide missing tests.

    python .ci/skips.py tests.xml notebooks.xml tests/expected_skips.txt

The reports of all steps come first, the list last; a report without a test is a fault of the step that wrote it.

A line of the list is `test id | reason`, the id as pytest's file::name without parameters; # begins a comment. Tests of
real recordings, which are not part of the repository, may skip where FLOPLEDGER_TRACES is not set, and nowhere else.
"""

import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path


def skipped(report: Path) -> list[tuple[str, str]]:
    """(test, reason) of every skip in a JUnit report; ends with a line where no test was run."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    if not cases:
        sys.exit(f"{report}: expected tests, found none")
    found = []
    for case in cases:
        for skip in case.iter("skipped"):
            found.append((test_id(case.get("classname", ""), case.get("name", "")), skip.get("message", "")))
    return found


def test_id(where: str, name: str) -> str:
    """`file::Class::name`, without parameters: modules are lower-case names, classes begin with a capital letter."""
    parts = where.split(".")
    modules = [part for part in parts if not part[:1].isupper()]
    classes = parts[len(modules) :]
    return "::".join(["/".join(modules) + ".py", *classes, name.partition("[")[0]])


def expected(file: Path) -> dict[str, str]:
    """test → reason, of the skips that are allowed."""
    lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
    return dict(tuple(part.strip() for part in line.split("|", 1)) for line in lines if line)


def without_recordings(reason: str) -> bool:
    """Whether a test skipped because there are no real recordings here, which is not the same as lost recordings."""
    return reason == "FLOPLEDGER_TRACES is not set" and "FLOPLEDGER_TRACES" not in os.environ


def main() -> int:
    """The exit code: 1 if a skip was not expected."""
    *reports, listed = map(Path, sys.argv[1:])
    allowed = expected(listed)
    skips = [skip for report in reports for skip in skipped(report)]
    surprises = [(test, why) for test, why in skips if not without_recordings(why) and allowed.get(test) != why]
    for test, reason in surprises:
        print(f"unexpected skip: {test} | {reason}", file=sys.stderr)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
