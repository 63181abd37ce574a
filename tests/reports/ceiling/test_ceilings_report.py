"""The answer of `runners.ceiling` as text, JSON and pictures, from rows of round rates."""

import json

import pytest

from reports.ceiling import figures as ceiling_figures
from reports.ceiling.text import document
from tests.support.made_up import made_up_ceilings


def test_the_document_has_every_key():
    found = json.loads(json.dumps(document(made_up_ceilings.gpu()), allow_nan=False))
    assert set(found) == {
        "device", "device_name", "torch", "driver", "best", "datasheet", "achievable", "rows", "notes",
    }  # fmt: skip
    best = {(row["unit"], row["operation"]): row for row in found["best"]}
    assert best["bf16", "matmul"]["datasheet_ratio"] == pytest.approx(780 / 989.5, rel=1e-3)
    assert best["", "copy"]["datasheet_ratio"] == pytest.approx(4.0 / 4.8)
    assert best["", "launch"]["datasheet_ratio"] is None
    assert best["", "launch"]["best_s"] == 3e-6
    assert found["datasheet"]["bytes_per_s"] == 4.8e12
    assert found["achievable"][0]["unit"] == "bf16"
    assert len(found["rows"]) == len(made_up_ceilings.gpu().rows)
    on_cpu = document(made_up_ceilings.cpu())
    assert (on_cpu["driver"], on_cpu["datasheet"], on_cpu["achievable"]) == (
        None,
        {"flop_per_s": {}, "bytes_per_s": None},
        [],
    )


# --- pictures ---


def test_points_are_the_rows():
    seen = made_up_ceilings.gpu()
    drawn = ceiling_figures.figures(seen)
    squares = {row.flop_per_s for row in seen.rows if row.operation == "matmul" and row.family in ("square", "near")}
    shown = {float(y) for line in drawn["ceilings_products"].axes[0].lines for y in line.get_ydata()}
    assert {round(rate) for rate in squares} <= {round(y) for y in shown}
    names = [tick.get_text() for tick in drawn["ceilings_shapes"].axes[0].get_yticklabels()]
    assert names[0] == "16384x16384x16384"
    assert "16384x16384x16384" in names
    assert "1024x1024x1024" not in names  # less work: it stands in the other picture
    assert "gradient of input, 512x512x14x14, 512 kernels 3x3" in names
    assert len(names) == len(set(names)) == 1 + 4 + 1 + 3 + 4 + 4
