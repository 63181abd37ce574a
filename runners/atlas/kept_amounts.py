"""The amounts by class of counted steps (`analysis.predict.amounts`), kept beside their costs.

They take a tenth of a second a step, so that an import reads them in place of working them out again. What is kept is
of one cost and of one version of the rules: it names the digest of both, and is made again where either changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from analysis.predict import StepAmounts, amounts, operation_amounts
from analysis.profile import fusion
from results import Inconsistent
from runners.atlas.costs import CostKey, in_processes, read_operations
from runners.atlas.counting_rules import parsed
from runners.reach import SMALL

ENDING = ".amounts.json"

RULES = (operation_amounts, fusion)
"""The modules whose rules decide what amounts are."""

Kept = Mapping[str, StepAmounts]
"""Way of running → class → amounts."""


def keep_all(keys: Iterable[CostKey], folder: Path, processes: int) -> Iterator[tuple[int, int]]:
    """Keeps the amounts of all counted steps that are not kept; yields (kept, to keep) after each."""
    missing = [key for key in dict.fromkeys(keys) if not are_kept(key, folder)]
    yield from in_processes(keep, missing, folder, processes)


def are_kept(key: CostKey, folder: Path) -> bool:
    """Whether the amounts of a counted step, or that it has none, are kept for its cost and these rules."""
    content = _content(key, folder)
    return content is not None and content.get("of") == _of(key, folder)


def keep(key: CostKey, folder: Path) -> None:
    """Works the amounts of a counted step out and keeps them; of one without operations, or whose operations change
    with the batch, that it has none."""
    found: Kept | None = None
    if (operations := read_operations(key, folder)) is not None:
        low, high = operations
        try:
            found = amounts(low, SMALL[0], high, SMALL[1])
        except Inconsistent:
            found = None
    content = {"of": _of(key, folder), "runs": None if found is None else _plain(found)}
    part = folder / f"{key.file}.{os.getpid()}.part{ENDING}"
    part.write_text(json.dumps(content, separators=(",", ":")), encoding="utf-8")
    part.replace(_file(key, folder))


def read(key: CostKey, folder: Path) -> Kept | None:
    """The amounts of a counted step; None where it has none, or they are not kept."""
    content = _content(key, folder)
    if content is None or content.get("of") != _of(key, folder) or content["runs"] is None:
        return None
    return {
        run: {
            name: operation_amounts.Amounts(launches, (flop, flop_per_item), (nbytes, bytes_per_item))
            for name, (launches, flop, flop_per_item, nbytes, bytes_per_item) in step.items()
        }
        for run, step in content["runs"].items()
    }


def _plain(amounts: Kept) -> dict[str, Any]:
    return {
        run: {name: [each.launches, *each.flop, *each.nbytes] for name, each in step.items()}
        for run, step in amounts.items()
    }


def _file(key: CostKey, folder: Path) -> Path:
    return folder / f"{key.file}{ENDING}"


def _content(key: CostKey, folder: Path) -> dict[str, Any] | None:
    """What the file says; None where there is none, or it is damaged."""
    try:
        found = json.loads(_file(key, folder).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _of(key: CostKey, folder: Path) -> str:
    """The digest of a cost and of the rules."""
    try:
        cost = (folder / key.file).read_bytes()
    except OSError:
        cost = b""
    return hashlib.sha256(_rules() + cost).hexdigest()[:16]


@functools.cache
def _rules() -> bytes:
    return "".join(parsed(Path(str(module.__file__)).read_text(encoding="utf-8")) for module in RULES).encode()
