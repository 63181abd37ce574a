"""The ledger of a parallel step as a person reads it, as a row a rank, and as JSON. Nothing is derived here.

Ranks that do the same are one line of the table, with how many they are; CSV and JSON have every rank.
"""

import json
from collections.abc import Sequence
from typing import Any

from analysis.parallel.ledger import Ledger, RankWork
from analysis.parallel.rank_grid import Coordinates
from reports.shared.layout import Column, Part, TextTable, strong
from reports.shared.numbers import digits, si

Answers = Sequence[tuple[str, int, Ledger]]
"""(model, global batch, its ledger)."""

UNEXPLAINED = {
    False: "one device does more than all ranks; as a product of samples or tokens that are on different ranks",
    True: "please report this model and plan",
}
"""Whether ranks do too much → what is said of it."""

SHOWN_REPLICAS = 12
"""Lines of work that is replicated."""


def document(model: str, batch_size: int, found: Ledger) -> dict[str, Any]:
    """One ledger, with every rank."""
    grid = found.grid
    return {
        "model": model,
        "batch_size": batch_size,
        "world": grid.world,
        "axes": {**grid.sizes, "ep": grid.ep},
        "microbatches": grid.microbatches,
        "schedule": grid.schedule,
        "replicas": grid.replicas,
        "ranks": [_rank(found, rank) for rank in range(grid.world)],
        "sum_model_flop": found.sum_flop,
        "single_device_model_flop": found.single_flop,
        "replicated_flop": found.replicated_flop,
        "recomputed_flop": found.recomputed_flop,
        "skipped_flop": found.skipped_flop,
        "unexplained_flop": found.unexplained_flop,
        "replicated": [
            {
                "phase": each.phase,
                "module": each.module,
                "kind": each.kind,
                "axis": each.axis,
                "times": each.times,
                "flop": each.flop,
            }
            for each in found.replicas
        ],
        "skipped": [
            {"phase": each.phase, "module": each.module, "kind": each.kind, "flop": each.flop} for each in found.skips
        ],
    }


def _rank(found: Ledger, rank: int) -> dict[str, Any]:
    place = found.grid.coordinates(rank)
    work = found.works[place]
    return {
        "rank": rank,
        "coordinates": {axis: getattr(place, axis) for axis in found.grid.sizes},
        "forward_flop": work.total("forward"),
        "backward_flop": work.total("backward"),
        "recomputed_flop": work.total("recompute"),
        "parameters": work.parameters,
        "state_bytes": work.state_bytes,
        "activation_bytes": work.activation_bytes,
        "bubble_ratio": float(found.grid.bubble),
        "collectives": [
            {"kind": each.kind, "group": each.group, "size": each.size, "calls": each.calls, "bytes": each.nbytes}
            for each in work.collectives
        ],
    }


def rows(answers: Answers) -> list[dict[str, Any]]:
    """A row a rank."""
    return [
        {
            name: json.dumps(value) if isinstance(value, (list, dict)) else value
            for name, value in {"model": model, **_rank(found, rank)}.items()
        }
        for model, _, found in answers
        for rank in range(found.grid.world)
    ]


def parts(model: str, batch_size: int, found: Ledger) -> list[Part]:
    """The page of one ledger."""
    grid = found.grid
    axes = " × ".join(f"{axis} {size}" for axis, size in grid.sizes.items() if axis != "cp" or size > 1)
    axes += f", experts over {grid.ep}" * (grid.ep > 1)
    share = batch_size // grid.dp // grid.microbatches
    rows = [
        ("sum over ranks", found.sum_flop),
        ("single device", found.single_flop),
        ("replicated", found.replicated_flop),
        ("recomputed", found.recomputed_flop),
        *([("skipped", -found.skipped_flop)] if found.skips else []),
        ("not explained", found.unexplained_flop),
    ]
    columns = Column("model FLOP of a step"), Column("", right=True)
    parts: list[Part] = [
        strong(f"{model}, batch {batch_size} over {grid.world} ranks ({axes})"),
        f"{grid.microbatches} micro-batch{'es' * (grid.microbatches > 1)} of {share} for each replica"
        + (f", {grid.schedule}: each stage waits {digits(100 * float(grid.bubble))} % of a step" * (grid.pp > 1)),
        "",
        TextTable(columns, [[name, f"{flop:,}"] for name, flop in rows], rule=False),
        "",
        _ranks(found),
        "",
        _collectives(found),
    ]
    if found.replicas:
        parts += ["", "Replicated:", *_replicas(found)]
    if found.skips:
        parts += ["", "Skipped: blocks of attention that the causal mask hides, and that one device's count has."]
    if found.unexplained_flop:
        parts += ["", f"{found.unexplained_flop:,} FLOP are not explained: {UNEXPLAINED[found.unexplained_flop > 0]}."]
    return parts


def _groups(found: Ledger) -> list[tuple[RankWork, list[Coordinates]]]:
    """Distinct ranks' work, and where it is done."""
    groups: list[tuple[RankWork, list[Coordinates]]] = []
    for place in found.grid.places():
        work = found.works[place]
        for other, places in groups:
            if other == work:
                places.append(place)
                break
        else:
            groups.append((work, [place]))
    return groups


def _name(found: Ledger, places: Sequence[Coordinates]) -> str:
    """Where on each axis they are, if they are not everywhere on it."""
    parts = []
    for axis, size in found.grid.sizes.items():
        values = {getattr(place, axis) for place in places}
        if len(values) < size:
            first, last = min(values), max(values)
            parts.append(f"{axis} {first}" + (f"–{last}" if last > first else ""))
    return ", ".join(parts) or "all"


def _ranks(found: Ledger) -> TextTable:
    columns = (
        Column("ranks"), Column("how many", right=True), Column("forward", right=True), Column("backward", right=True),
        Column("parameters", right=True), Column("state", right=True), Column("activations", right=True),
    )  # fmt: skip
    rows = [
        [
            _name(found, places),
            f"{len(places)}",
            si(work.total("forward"), "FLOP"),
            si(work.total("backward"), "FLOP"),
            si(work.parameters, ""),
            si(work.state_bytes, "B"),
            si(work.activation_bytes, "B"),
        ]
        for work, places in _groups(found)
    ]
    return TextTable(columns, rows, rule=False)


def _collectives(found: Ledger) -> TextTable:
    columns = (
        Column("ranks"), Column("collective"), Column("over"), Column("calls", right=True), Column("bytes", right=True),
    )  # fmt: skip
    rows = [
        [_name(found, places), each.kind, f"{each.group} ({each.size})", f"{each.calls:,}", f"{each.nbytes:,}"]
        for work, places in _groups(found)
        for each in work.collectives
    ]
    return TextTable(columns, rows, rule=False)


def _replicas(found: Ledger) -> list[str]:
    """The largest, by module."""
    ordered = sorted(found.replicas, key=lambda each: -each.flop)
    lines = [
        f"  {each.module or '(the model itself)'}, {each.kind}, {each.phase}: {each.times} times over {each.axis}, "
        f"{each.flop:,} FLOP more"
        for each in ordered[:SHOWN_REPLICAS]
    ]
    rest = ordered[SHOWN_REPLICAS:]
    return [*lines, f"  {len(rest)} more: {sum(each.flop for each in rest):,} FLOP"] if rest else lines
