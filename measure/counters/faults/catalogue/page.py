"""The catalogue as a page: `docs/counter-faults.md`, made from the tables of this package and from nothing else.

What the page says of a version is what the catalogue says; the tests hold both to what is installed. Prints nothing.
"""

from __future__ import annotations

import json
from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from typing import Any

from measure.counters.faults.catalogue.catalogue import COUNTERS, Counter, faults_of
from measure.counters.faults.catalogue.fault import CAUSES, KINDS, Fault

HEAD = """# Faults of counters

Every fault of a FLOP counter that we know and can show. Each has a reproduction, the smallest that shows it, and a test
runs each against the version that is installed: when upstream mends one, the test says so. The right values are derived
beside them, by hand. What a counter leaves out by a convention that it documents is no fault; how conventions differ is
in [conventions](conventions.md).

    python -m runners.faults                             # which of them does this machine's installation have?
    python -m runners.faults --counters fvcore --detail

A `FlopCounterMode` without the faults that concern its totals is `flopledger.flop_counter_mode()`:

    import flopledger

    with flopledger.flop_counter_mode(display=False) as mode:
        model(images).sum().backward()
    print(mode.get_total_flops())

This page is generated: `python -m runners.faults --write docs/counter-faults.md`. The reproductions are in
`measure/counters/faults/reproductions/COUNTER.py`, a function of the fault's name each, or where counters share one in `measure/counters/faults/reproductions/shared.py`,
`measure/counters/faults/reproductions/profilers.py` and `measure/counters/faults/reproductions/calls.py` there; the small models are in `measure/counters/faults/reproductions/nets.py`.
"""  # noqa: E501


def page() -> str:
    """The whole page."""
    found = {name: faults_of(name) for name in COUNTERS}
    lines = [HEAD, *_summary(found), *_vocabulary("Kinds", KINDS), *_vocabulary("Causes", CAUSES)]
    for name, counter in COUNTERS.items():
        lines += _section(name, counter, found[name])
    return "\n".join(lines) + "\n"


def _summary(found: Mapping[str, tuple[Fault, ...]]) -> Iterator[str]:
    """Faults by counter and kind."""
    total = sum(map(len, found.values()))
    yield f"## {total} faults\n"
    yield f"| counter | {' | '.join(KINDS)} | all |"
    yield f"| --- |{' --- |' * (len(KINDS) + 1)}"
    for name, faults in found.items():
        kinds = Tally(fault.kind for fault in faults)
        counts = " | ".join(str(kinds[kind]) for kind in KINDS)
        yield f"| [{COUNTERS[name].title}](#{name}) | {counts} | {len(faults)} |"
    yield ""


def _vocabulary(title: str, words: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield "| word | meaning |"
    yield "| --- | --- |"
    yield from (f"| {word} | {meaning} |" for word, meaning in words.items())
    yield ""


def _section(name: str, counter: Counter, faults: tuple[Fault, ...]) -> Iterator[str]:
    yield f"## {name}\n"
    yield f"{counter.title}; seen in {counter.package} {' and '.join(counter.tried)}. Numbers are {counter.unit}.\n"
    yield "| fault | what is wrong, and what is right | gives | right | kind: cause | threads |"
    yield "| --- | --- | --- | --- | --- | --- |"
    yield from (_row(fault, counter) for fault in faults)
    yield ""


def _row(fault: Fault, counter: Counter) -> str:
    where = f" Versions {fault.versions}." if fault.versions else ""
    threads = ", ".join(f"[{number}]({counter.origin.format(number)})" for number in fault.threads)
    cells = (
        f"`{fault.name}`",
        f"{fault.what} *{fault.why}*{where}",
        value(fault.seen),
        value(fault.right),
        f"{fault.kind}: {fault.cause}",
        threads,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def value(content: Any) -> str:
    """A value as a person reads it: numbers in groups of three, lists and mappings with a comma between."""
    if isinstance(content, bool) or content is None:
        return {True: "yes", False: "no", None: "nothing"}[content]
    if isinstance(content, int):
        return f"{content:,}"
    if isinstance(content, (list, tuple)):
        return "; ".join(value(item) for item in content)
    if isinstance(content, dict):
        return "; ".join(f"{key}: {value(item)}" for key, item in content.items())
    return content if isinstance(content, str) else json.dumps(content)
