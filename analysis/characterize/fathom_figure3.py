"""The operation types of Fathom's eight workloads as the paper prints them: Figure 3, in per cent of each one's time.

Source: Adolf, Rama, Reagen, Wei, Brooks, "Fathom: reference workloads for modern deep learning methods", IISWC 2016,
Figure 3 (training, a CPU of eight threads, TensorFlow 0.8). `fathom_figure3.csv` holds its cells. Rows sum to 94 to
99: the paper's tool cuts each cell down to a whole per cent.

One row is in doubt. As printed ("literal") seq2seq's data movement reads Tile 3, Select 20, Reshape 1; its graph has no
Select, and shifting the run by one place gives Transpose 3, Tile 20, Pad 1 ("likely"), which is used. All of it is
group G either way, so the doubt does not touch the groups; it moves the merge of seq2seq and memnet from 0.11 to 0.23.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Mapping
from pathlib import Path

TABLE = Path(__file__).with_name("fathom_figure3.csv")

READINGS = ("likely", "literal")

COLUMNS_OF_GROUPS: Mapping[str, str] = {
    "A": "Add Sub Mul Div Pow Softmax",
    "B": "MatMul",
    "C": "CrossEntropy MaxPoolGrad Sum",
    "D": "Conv2D Conv2DBackFilter Conv2DBackInput",
    "E": "RandomNormal",
    "F": "ApplyAdam ApplyRMSProp",
    "G": "Transpose Tile Select Pad Reshape Shape Concat",
}
"""Group → its columns, in the paper's order. It has no column for time outside of operations (our H)."""


@functools.cache
def _rows() -> tuple[Mapping[str, str], ...]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def figure3(reading: str = "likely") -> dict[str, dict[str, int]]:
    """Workload → operation type → per cent of its training time. Raises ValueError for an unknown reading."""
    if reading not in READINGS:
        raise ValueError(f"expected a reading ({', '.join(READINGS)}), got {reading!r}")
    found: dict[str, dict[str, int]] = {}
    for row in _rows():
        if row["workload"] not in found or row["reading"] == reading:
            cells = {name: int(cell) for name, cell in row.items() if name not in ("reading", "workload")}
            found[row["workload"]] = cells
    return found


def figure3_groups() -> dict[str, dict[str, int]]:
    """Workload → group → per cent, the sums of the printed cells; the same for both readings."""
    return {
        workload: {group: sum(cells[name] for name in names.split()) for group, names in COLUMNS_OF_GROUPS.items()}
        for workload, cells in figure3().items()
    }
