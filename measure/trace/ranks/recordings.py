"""The recordings of many ranks in one folder: Kineto's, a file each, or those of Nsight Systems, by the names' ends."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from analysis.ranks.timelines import Timeline
from measure.trace.ranks.kineto_rank import read_kineto_rank
from measure.trace.ranks.nsys_rank import read_nsys_rank, read_nsys_ranks

READERS = {
    ".json": read_kineto_rank,
    ".json.gz": read_kineto_rank,
    ".sqlite": read_nsys_rank,
    ".sqlite.gz": read_nsys_rank,
}
"""End of a file's name → what reads it."""

TRACE_ENDINGS = tuple(READERS)
NSIGHT_ENDINGS = (".sqlite", ".sqlite.gz")

DOCUMENT = "ranks.json"
"""What `runners.trace DIR --out DIR` writes beside them, which is no recording."""


def rank_files(folder: Path) -> list[Path]:
    """The traces in a folder, by name, node2 before node10. Raises ValueError for none."""
    named = (path for path in folder.iterdir() if path.name.endswith(TRACE_ENDINGS) and path.name != DOCUMENT)
    files = sorted(
        (path for path in named if path.is_file()),
        key=lambda path: [(text, int(number or -1)) for text, number in re.findall(r"(\D*)(\d*)", path.name)],
    )
    if not files:
        held = sorted(path.name for path in folder.iterdir())
        near = f"; it holds {', '.join(held[:3])}{', …' if len(held) > 3 else ''}" if held else ""
        ends = f"{', '.join(TRACE_ENDINGS[:-1])} or {TRACE_ENDINGS[-1]}"
        raise ValueError(f"expected recordings ({ends}, one a rank) in {folder}, got none{near}")
    return files


def read_ranks(paths: Iterable[Path]) -> list[Timeline]:
    """The timelines in these files, in their order. Exports of Nsight Systems that have several ranks and say none are
    numbered on from file to file. Raises ValueError as `read_rank` does."""
    found: list[Timeline] = []
    numbered = 0
    for path in paths:
        if not path.name.endswith(NSIGHT_ENDINGS):
            found.append(read_rank(path))
            continue
        ranks = read_nsys_ranks(path, numbered)
        numbered += len(ranks) if len(ranks) > 1 else 0
        found += ranks
    return found


def read_rank(path: Path) -> Timeline:
    """The timeline in a trace. Raises ValueError, one line, for what is no trace, names no rank or is malformed."""
    end = next((end for end in READERS if path.name.endswith(end)), ".json")
    return READERS[end](path)
