"""How often does a recording that was cut at random change a total with nothing said?

    python -m benchmarks.cut_recordings --recordings 60 --seed 0
    python -m benchmarks.cut_recordings --file trace.json.gz --cuts 40   # one recording, of any machine

Small nets are recorded by torch.profiler on this CPU, in four forms: as it writes them ("numbered"); without its
numbers of events ("unnumbered"), as a tool may leave them that writes traces anew; the calls alone, without arrows and
window ("calls_alone"); and these without autograd's numbers ("no_sequences"). From each form events are taken in eleven
ways, and what is left goes the way of `python -m runners.trace`. What comes of it:

* equal: each total is that of the whole recording;
* marked: a total is unknown, with a reason, or the file is refused;
* absent: a phase of which nothing is left has no number;
* shorter: what is left is whole passes, and totals are of these;
* labelled: a total is another number than it was, and is said to be of the calls recorded: of a file that numbers none,
  missing ones cannot be seen, and of one that does, none after the last one;
* silent: the same without a word.

What it does not show: large nets, and of devices only what `--file` names.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from results import Inconsistent
from tests.support.recordings.cut_recordings import (
    CUTS,
    FORMS,
    SHORTER,
    Event,
    cleaned,
    drawn,
    ends_earlier,
    is_unnumbered,
    judged,
    passes,
    recorded,
)

WORDS = ("equal", "marked", "absent", "shorter", "labelled", "silent")

NAMES = {"exact": "equal", "partial": "marked", "unseen": "silent"}
"""The words of `judged` → those of this page."""

Found = Counter[tuple[str, str, str]]


def of_form(
    events: list[Event], whole_passes: dict[str, int] | None, cuts: int, dice: random.Random, folder: Path
) -> Iterator[tuple[str, str, int]]:
    """(cut, what came of it, its seed) of one recording in one form. whole_passes: of `judged`; None: not known."""
    whole = cleaned(events, folder / "whole.json")
    for name, cut in CUTS.items():
        for _ in range(cuts):
            at = dice.randrange(10**9)
            left = cut(events, random.Random(at))
            try:
                found = cleaned(left, folder / "cut.json")
            except (Inconsistent, ValueError):
                yield name, "marked", at
                continue
            word = judged(whole, found, whole_passes if name in SHORTER else None)
            said = word == "unseen" and (is_unnumbered(found) or ends_earlier(events, left))
            yield name, "labelled" if said else NAMES.get(word, word), at


def made(recordings: int, seed: int, forms: Sequence[str], say: Callable[[str], object]) -> Found:
    """Outcomes of random nets: (form, cut, word) → how many."""
    found: Found = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(seed, seed + recordings):
            dice = random.Random(number)
            names, how = drawn(dice)
            events = recorded(names, folder / "made.json", **how)
            for form in forms:
                for cut, word, at in of_form(
                    FORMS[form](events), passes(how["ways"], how["steps"]), 1, random.Random(number), folder
                ):
                    found[(form, cut, word)] += 1
                    if word in ("labelled", "silent"):
                        say(f"{word}: recording {number} {names} {how}, {form}, {cut}, seed {at}")
    return found


def of_file(path: Path, cuts: int, seed: int, forms: Sequence[str], say: Callable[[str], object]) -> Found:
    """Outcomes of one recording: of which passes are alike is not known, so that a shorter one counts as silent."""
    content = path.read_bytes()
    held: Any = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    events = held["traceEvents"] if isinstance(held, dict) else held
    found: Found = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for form in forms:
            for cut, word, at in of_form(FORMS[form](events), None, cuts, random.Random(seed), Path(folder)):
                found[(form, cut, word)] += 1
                if word in ("labelled", "silent"):
                    say(f"{word}: {path.name}, {form}, {cut}, seed {at}")
    return found


def table(found: Found) -> str:
    """Markdown: a row for each form and cut."""
    lines = [f"| form | cut | {' | '.join(WORDS)} |", f"| --- | --- |{' --- |' * len(WORDS)}"]
    for form in dict.fromkeys(form for form, _, _ in found):
        for cut in (*CUTS, "all"):
            many = [sum(n for (f, c, w), n in found.items() if f == form and w == word and cut in (c, "all"))
                    for word in WORDS]  # fmt: skip
            lines.append(f"| {form} | {cut} | {' | '.join(map(str, many))} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table on stdout, and each labelled or silent case on stderr. 1: there is one."""
    parser = argparse.ArgumentParser(description="How often does a cut recording change a total in silence?")
    parser.add_argument("--recordings", type=int, default=60, help="random nets to record (60)")
    parser.add_argument("--file", type=Path, help="cut this recording instead")
    parser.add_argument("--cuts", type=int, default=10, help="cuts of each way of --file (10)")
    parser.add_argument("--seed", type=int, default=0, help="of the first net, or of the file's cuts (0)")
    parser.add_argument("--forms", nargs="+", choices=[*FORMS], default=[*FORMS], help="all of them")
    options = parser.parse_args(arguments)

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    if options.file:
        found = of_file(options.file, options.cuts, options.seed, options.forms, say)
    else:
        found = made(options.recordings, options.seed, options.forms, say)
    print(table(found))
    return int(any(word == "silent" for _, _, word in found))


if __name__ == "__main__":
    sys.exit(main())
