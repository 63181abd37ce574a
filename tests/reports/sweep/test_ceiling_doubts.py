"""Injected fault: a ceiling that was measured under load is marked wherever a utilization is divided by it."""

from dataclasses import replace
from pathlib import Path

import pytest

from reports.sweep.headline import basis, closing
from reports.sweep.table import peak_lines
from results.records.cell import Ceiling
from runners import rebuild
from tests.support.made_up import made_up_device, made_up_evidence

FP32 = ("fp32", 8, 0)


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here looks at them, and they take most of the time."""
    monkeypatch.setattr(rebuild, "_pictures", lambda out: {})


def built(path: Path, ceilings: list[Ceiling], **preflight: object):  # type: ignore[no-untyped-def]
    """What is derived of one cell on a device without a sheet, so that the ceiling is the headline."""
    parts = made_up_evidence.parts((FP32,), device_name="NVIDIA H2000")
    first = parts.sessions[0]
    parts.sessions[0] = replace(first, preflight={**first.preflight, **preflight})
    parts.ceilings = ceilings
    return rebuild.rebuild(made_up_evidence.write(path, made=parts))


def ceilings() -> list[Ceiling]:
    return [row for row in made_up_evidence.parts((FP32,)).ceilings if row.precision == "fp32"]


def scattered(row: Ceiling) -> Ceiling:
    """The fastest call took 30 % of the median."""
    return replace(row, best_s=0.3 * (row.median_s or 0.0))


LOADED = {
    "its calls scatter": ([scattered(row) for row in ceilings()], {}, "its fastest call took 30 % of the median"),
    "others were seen": (
        [replace(row, reason="note: others used 40% of the processors while this was timed") for row in ceilings()],
        {},
        "others used 40% of the processors",
    ),
    "no processor was free": (ceilings(), {"load_1min": 2.5, "cpu_usable": 2}, "a load of 2.5 on 2 processors"),
}


def without(operation: str) -> list[Ceiling]:
    """The same kernels, those of one kind out of memory."""
    lost = {"status": "out_of_memory", "reason": "tried 9 GiB", "flop_per_s": None, "median_s": None, "flop": None}
    return [replace(row, **lost) if row.operation == operation else row for row in ceilings()]  # type: ignore[arg-type]


LOADED |= {
    f"no {operation}": (without(operation), {}, f"no {operation} of fp32 was timed (tried 9 GiB)")
    for operation in ("matmul", "convolution")
}


@pytest.mark.parametrize("how", LOADED)
def test_a_ceiling_under_load_is_marked_at_the_headline(how: str, tmp_path: Path) -> None:
    rows, preflight, words = LOADED[how]
    found = built(tmp_path / "run", rows, **preflight)
    (view,) = found.views
    assert view.headline is not None
    assert view.headline.denominator == "ceiling"
    (mark,) = (mark for mark in view.headline.warnings if mark.startswith("ceiling_doubtful"))
    assert words in mark
    assert words in peak_lines(found.views)[0], "below the table"
    assert words in basis(closing(found.views), found.views), "beside the page's sentence"
    csv = (tmp_path / "run" / "utilization.csv").read_text(encoding="utf-8")
    assert words in csv


def test_a_ceiling_that_another_cell_is_above_is_marked(tmp_path: Path) -> None:
    parts = made_up_evidence.parts((FP32, ("fp32", 16, 0)), device_name="NVIDIA H2000")
    parts.ceilings = [made_up_device.at_rate(row, 2.4e12) for row in ceilings()]  # batch 8: 2.23e12, batch 16: 2.68e12
    rebuild.rebuild(made_up_evidence.write(tmp_path / "run", made=parts))
    rows = rebuild.evidence_of(tmp_path / "run").rebuilt
    small = [row for row in rows if (row.batch_size, row.denominator, row.method) == (8, "ceiling", "exact")]
    assert small[0].utilization_ratio == pytest.approx(2.233 / 2.4, rel=1e-3)
    assert "another cell reaches 1.12 × of it" in small[0].warnings[-1]


def test_a_ceiling_without_a_doubt_has_no_mark(tmp_path: Path) -> None:
    (view,) = built(tmp_path / "run", ceilings(), load_1min=0.4, cpu_usable=2).views
    assert not any("ceiling_doubtful" in mark for row in view.fractions for mark in row.warnings)
