"""Definition: the JSON document of `runners.ceiling` has every key, and its ratios follow from rows of round rates."""

import json

import pytest

from reports.ceiling import document
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
