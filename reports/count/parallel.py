"""Writes how the FLOP of a parallel step are distributed over ranks, as a page, CSV and JSON.

`parts`, `rows` and `document` take a `Ledger`, which compares the sum over ranks with a single device, and its model's
name. None of them computes a count. On the page, ranks with equal work share one line of the table, which says how many
ranks there are. CSV and JSON have every rank.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from analysis.parallel.ledger import Ledger, RankLoad
from analysis.parallel.rank_grid import Coordinates
from reports.shared.layout import Part, TableColumn, TextTable, strong
from reports.shared.numbers import digits, si

Answers = Sequence[tuple[str, int, Ledger]]
"""(model, global batch, ledger) of each model."""

UNEXPLAINED = {
    False: "one device does more than all ranks, for example in a product of samples that lie on different ranks",
    True: "please report this model and plan",
}
"""Whether the ranks do more than one device → the explanation that is shown, or the request to report it."""

SHOWN_REPLICAS = 12
"""Maximum number of lines about replicated work."""


def document(model: str, batch_size: int, ledger: Ledger) -> dict[str, Any]:
    """Return one ledger as a JSON document, with every rank."""
    grid = ledger.grid
    return {
        "model": model,
        "batch_size": batch_size,
        "world": grid.world,
        "axes": {**grid.sizes, "ep": grid.ep},
        "microbatches": grid.microbatches,
        "schedule": grid.schedule,
        "replicas": grid.replicas,
        "ranks": [_rank(ledger, rank) for rank in range(grid.world)],
        "sum_model_flop": ledger.sum_flop,
        "single_device_model_flop": ledger.single_flop,
        "replicated_flop": ledger.replicated_flop,
        "recomputed_flop": ledger.recomputed_flop,
        "unexplained_flop": ledger.unexplained_flop,
        "replicated": [asdict(replica) for replica in ledger.replicas],
    }


def _rank(ledger: Ledger, rank: int) -> dict[str, Any]:
    coordinates = ledger.grid.coordinates(rank)
    load = ledger.loads[coordinates]
    return {
        "rank": rank,
        "coordinates": {axis: getattr(coordinates, axis) for axis in ledger.grid.sizes},
        "forward_flop": load.total("forward"),
        "backward_flop": load.total("backward"),
        "recomputed_flop": load.total("recompute"),
        "parameters": load.parameters,
        "state_bytes": load.state_bytes,
        "activation_bytes": load.activation_bytes,
        "bubble_ratio": float(ledger.grid.bubble),
        "collectives": [
            {"kind": call.kind, "group": call.group, "size": call.size, "calls": call.calls, "bytes": call.nbytes}
            for call in load.collectives
        ],
    }


def rows(answers: Answers) -> list[dict[str, Any]]:
    """Return a CSV row for each rank of each ledger."""
    return [
        {
            name: json.dumps(value) if isinstance(value, (list, dict)) else value
            for name, value in {"model": model, **_rank(ledger, rank)}.items()
        }
        for model, _, ledger in answers
        for rank in range(ledger.grid.world)
    ]


def parts(model: str, batch_size: int, ledger: Ledger) -> list[Part]:
    """Return the page of one ledger."""
    grid = ledger.grid
    axes = " × ".join(f"{axis} {size}" for axis, size in grid.sizes.items())
    axes += f", experts over {grid.ep}" * (grid.ep > 1)
    share = batch_size // grid.dp // grid.microbatches
    rows = [
        ("sum over ranks", ledger.sum_flop),
        ("single device", ledger.single_flop),
        ("replicated", ledger.replicated_flop),
        ("recomputed", ledger.recomputed_flop),
        ("not explained", ledger.unexplained_flop),
    ]
    columns = TableColumn("model FLOP of a step"), TableColumn("", right=True)
    parts: list[Part] = [
        strong(f"{model}, batch {batch_size} over {grid.world} ranks ({axes})"),
        f"{grid.microbatches} micro-batch{'es' * (grid.microbatches > 1)} of {share} for each replica"
        + (f", {grid.schedule}: each stage waits {digits(100 * float(grid.bubble))} % of a step" * (grid.pp > 1)),
        "",
        TextTable(columns, [[name, f"{flop:,}"] for name, flop in rows], rule=False),
        "",
        _ranks(ledger),
        "",
        _collectives(ledger),
    ]
    if ledger.replicas:
        parts += ["", "Replicated:", *_replicas(ledger)]
    if ledger.unexplained_flop:
        parts += [
            "",
            f"{ledger.unexplained_flop:,} FLOP are not explained: {UNEXPLAINED[ledger.unexplained_flop > 0]}.",
        ]
    return parts


def _groups(ledger: Ledger) -> list[tuple[RankLoad, list[Coordinates]]]:
    """Return each distinct load, and the coordinates of the ranks that have it."""
    groups: list[tuple[RankLoad, list[Coordinates]]] = []
    for coordinates in ledger.grid.places():
        load = ledger.loads[coordinates]
        for known, ranks in groups:
            if known == load:
                ranks.append(coordinates)
                break
        else:
            groups.append((load, [coordinates]))
    return groups


def _name(ledger: Ledger, ranks: Sequence[Coordinates]) -> str:
    """Name ranks by their range on each axis that they do not fill."""
    parts = []
    for axis, size in ledger.grid.sizes.items():
        values = {getattr(coordinates, axis) for coordinates in ranks}
        if len(values) < size:
            first, last = min(values), max(values)
            parts.append(f"{axis} {first}" + (f"–{last}" if last > first else ""))
    return ", ".join(parts) or "all"


def _ranks(ledger: Ledger) -> TextTable:
    columns = (
        TableColumn("ranks"), TableColumn("how many", right=True), TableColumn("forward", right=True),
        TableColumn("backward", right=True), TableColumn("parameters", right=True), TableColumn("state", right=True),
        TableColumn("activations", right=True),
    )  # fmt: skip
    rows = [
        [
            _name(ledger, ranks),
            f"{len(ranks)}",
            si(load.total("forward"), "FLOP"),
            si(load.total("backward"), "FLOP"),
            si(load.parameters, ""),
            si(load.state_bytes, "B"),
            si(load.activation_bytes, "B"),
        ]
        for load, ranks in _groups(ledger)
    ]
    return TextTable(columns, rows, rule=False)


def _collectives(ledger: Ledger) -> TextTable:
    columns = (
        TableColumn("ranks"), TableColumn("collective"), TableColumn("over"), TableColumn("calls", right=True),
        TableColumn("bytes", right=True),
    )  # fmt: skip
    rows = [
        [_name(ledger, ranks), call.kind, f"{call.group} ({call.size})", f"{call.calls:,}", f"{call.nbytes:,}"]
        for load, ranks in _groups(ledger)
        for call in load.collectives
    ]
    return TextTable(columns, rows, rule=False)


def _replicas(ledger: Ledger) -> list[str]:
    """Return a line for each of the largest replicated parts, by module."""
    ordered = sorted(ledger.replicas, key=lambda replica: -replica.flop)
    lines = [
        f"  {replica.module or '(the model itself)'}, {replica.kind}, {replica.phase}: "
        f"{replica.times} times over {replica.axis}, {replica.flop:,} FLOP more"
        for replica in ordered[:SHOWN_REPLICAS]
    ]
    rest = ordered[SHOWN_REPLICAS:]
    return [*lines, f"  {len(rest)} more: {sum(replica.flop for replica in rest):,} FLOP"] if rest else lines
