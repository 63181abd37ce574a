"""Known answer, law, definition: the paper's cells by independent values; printed results never feed ours."""

import csv
import shutil
from pathlib import Path

import pytest

from analysis.project import ppopp2019, ppopp2019_case_study
from analysis.project.frontier import amount
from analysis.project.ppopp2019 import ASSUMED, NOT, REPRODUCED, DerivedValue, PaperCell, Printed, box
from reports.project_paper import deviation


@pytest.fixture(scope="module")
def cells() -> dict[tuple[str, str, str], PaperCell]:
    return {(cell.table, cell.row, cell.column): cell for cell in ppopp2019_case_study.reproduced()}


def test_ours_stays_as_it_is_without_the_printed_results(
    cells: dict[tuple[str, str, str], PaperCell], tmp_path: Path
) -> None:
    folder = tmp_path / "ppopp2019"
    shutil.copytree(ppopp2019.FOLDER, folder)
    with (folder / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with (folder / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "value": ""} for row in rows)
    without = ppopp2019_case_study.reproduced(folder)
    assert [cell.ours for cell in without] == [cell.ours for cell in cells.values()]
    assert {cell.paper for cell in without} == {None}


EXPECTED = {
    # from facts outside of this code: (ours, how near)
    ("Table 1", "word LM", "data scale"): (104.2, 1e-3),
    ("Table 1", "character LM", "data scale"): (836.0, 1e-3),
    ("Table 1", "NMT", "data scale"): (749.6, 1e-3),
    ("Table 1", "speech", "data scale"): (19.5, 5e-3),
    ("Table 1", "image", "data scale"): (80.5, 1e-3),
    ("Table 1", "character LM", "SOTA of alpha"): (1.244, 1e-3),
    ("Table 2", "word LM", "gamma"): (480.65, 1e-5),
    ("Table 2", "character LM", "gamma"): (901.6, 1e-4),
    ("Table 2", "word LM", "lambda"): (1948.0, 1e-6),
    ("Table 2", "character LM", "lambda"): (3628.0, 1e-6),
    ("Table 2", "word LM", "lambda/gamma"): (1948 / 480.65, 1e-5),
    ("Table 2", "word LM", "mu/gamma"): ((1428 * 80 + 56) / 4 / 480.65, 1e-5),
    ("Table 2", "NMT", "lambda"): (621.0, 1e-3),
    ("Table 3", "character LM", "parameters"): (1707e9, 1e-3),
    ("Table 3", "word LM", "step FLOP"): (1440.9e12, 2e-3),
    ("Table 3", "character LM", "step FLOP"): (12618e12, 3e-3),
    ("Table 3", "NMT", "step FLOP"): (499.24e12, 4e-3),
    ("Table 3", "speech", "step FLOP"): (72.17e12, 8e-3),
    ("Table 3", "word LM", "step bytes"): (41.35e12, 3e-3),
    ("Table 3", "NMT", "step bytes"): (18.19e12, 4e-3),
    ("Table 4", "target", "ridge point"): (17.45, 1e-3),
    ("Table 4", "target", "achievable ridge point"): (19.94, 1e-3),
    ("Section 6", "case study", "step time"): (9.888, 1e-4),
    ("Section 6", "case study", "cache-aware epoch"): (4668.0, 5e-3),
    ("Table 5", "best case", "epoch"): (2710.0, 4e-3),
    ("Table 5", "best case", "memory"): (113.3e9, 1e-3),
    ("Table 5", "cache-aware", "utilization"): (0.464, 2e-3),
    ("Table 5", "data parallel 1", "epoch"): (6.20, 2e-3),
    ("Table 5", "data parallel 2", "epoch"): (11.14, 3e-3),
    ("Table 5", "data parallel 1", "utilization"): (0.341, 3e-3),
    ("Table 5", "data parallel 2", "memory"): (125.2e9, 1e-3),
    ("Table 5", "layer parallel", "utilization"): (0.1455, 5e-3),
    ("Table 5", "layer parallel", "memory of embedding"): (59.51e9, 1e-4),
}


@pytest.mark.parametrize("key", EXPECTED, ids=" ".join)
def test_what_follows_is_what_others_found(
    key: tuple[str, str, str], cells: dict[tuple[str, str, str], PaperCell]
) -> None:
    value, near = EXPECTED[key]
    assert cells[key].ours == pytest.approx(value, rel=near)


@pytest.mark.parametrize(
    ("printed", "ours", "verdict", "words"),
    [
        ("100", DerivedValue(101.9), REPRODUCED, ""),
        ("100", DerivedValue(98.1, ("a",)), ASSUMED, "why"),
        ("100", DerivedValue(102.6), NOT, ""),
        (
            "100",
            DerivedValue(110.0, ("a",), 95.0, 120.0),
            ASSUMED,
            "why; the printed inputs are rounded, and 95 to 120 follow",
        ),
        ("100", DerivedValue(110.0, (), 101.0, 120.0), NOT, ""),
        ("100", DerivedValue(90.0, (), 80.0, 95.0), NOT, ""),
        ("4e1", DerivedValue(44.4), ASSUMED, "the printed 40 is rounded, from 35 to 45"),
        ("2.3", DerivedValue(2.206), ASSUMED, "the printed 2.3 is rounded, from 2.25 to 2.35"),
        ("2.3", DerivedValue(2.2), NOT, ""),
        ("", DerivedValue(2.2), NOT, ""),
        ("100", None, NOT, ""),
    ],
)
def test_a_verdict_by_its_rule(
    printed: str, ours: DerivedValue | None, verdict: str, words: str, tmp_path: Path
) -> None:
    (tmp_path / "results.csv").write_text(f"table,row,column,value,unit\nT,r,c,{printed},\n")
    (tmp_path / "assumptions.csv").write_text("key,value,words\na,1,why\n")
    (tmp_path / "reasons.csv").write_text("table,row,column,reason\nT,*,*,because\n")
    (cell,) = ppopp2019.cells({("T", "r", "c"): ours} if ours else {}, tmp_path)
    assert (cell.verdict, cell.assumption, cell.reason) == (verdict, words, "because" if verdict == NOT else "")
    with pytest.raises(ValueError, match="expected results that are printed"):
        ppopp2019.cells({("T", "r", "x"): DerivedValue(1.0)}, tmp_path)


def test_numbers_know_what_they_were_rounded_from() -> None:
    assert Printed("3.37").ends == pytest.approx((3.365, 3.375))
    assert Printed("9.4e-4").half_unit == pytest.approx(5e-6)
    assert Printed("768e6").ends == pytest.approx((767.5e6, 768.5e6))
    assert box(lambda a, b: a / b, Printed("10"), Printed("4")) == pytest.approx((9.5 / 4.5, 10.5 / 3.5))
    assert [amount(v, u) for v, u in ((1.444e15, "FLOP"), (30784, "B"), (0.8, ""), (None, "s"), (2716.26, "day"))] == [
        "1.444 PFLOP",
        "30,784 B",
        "0.8",
        "-",
        "2,716 day",
    ]
    assert [deviation(x) for x in (0.0421, -0.00004, 10.69, None)] == ["+4.2 %", "+0.0 %", "× 11.7", "-"]
