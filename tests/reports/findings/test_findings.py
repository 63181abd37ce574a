"""The page of findings is what its command makes of the published rows; what no run supports says open."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from analysis.atlas import published_steps
from cleaning.reconcile.run import build
from reports.findings import counts as findings_counts
from reports.findings import figure as findings_figure
from reports.findings import low_utilization
from reports.findings import published as findings_published
from reports.findings import times as findings_times
from reports.findings import traffic as findings_traffic
from reports.findings.data import Published, bandwidth, common_settings, largest_batch, widest
from reports.findings.page import SECTIONS, page
from reports.findings.shared import IN_PART, OPEN, SETTLED, table
from reports.shared import percent
from reports.sweep.answer.table import to_csv
from results.records import Ceiling
from results.store.store import read_operations, read_profile, read_run
from runners.cli.output_files import put
from runners.report import command
from runners.report.derived import derived_tables
from runners.report.findings import page_and_pictures as page_and_pictures
from runners.report.findings import published
from tests.support.fakes.commands import refused, running
from tests.support.made_up import made_up_evidence, run_fixture


@pytest.fixture(scope="module", autouse=True)
def each_file_read_once() -> Iterator[None]:
    """Sections and tests ask for the operations of the same published cells again and again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(findings_traffic, "read_operations", functools.lru_cache(maxsize=None)(read_operations))
        yield


ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "findings.md"
RUNS = ROOT / "results" / "published"
THREE = ("amd-epyc-2-cores-2026-11-20", "amd-epyc-2-cores-2026-11-21", "intel-xeon-2-cores-2026-11-22")


def three_runs() -> list[Published]:
    """The first three published runs, whose rows the tests below know."""
    return [run for run in published(RUNS) if run.name in THREE]


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_the_page_is_what_the_command_makes_of_the_published_rows(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runners.report.findings.run_pictures", lambda name, run: {name: b""})
    made_text, pictures = page_and_pictures(RUNS, PAGE)
    assert made_text == text, "python -m runners.report --findings"
    assert all((PAGE.parent / "images" / name).is_file() for name in pictures)


def test_every_cell_that_is_named_is_a_published_one(text: str) -> None:
    known = {run.cell_id for path in RUNS.glob("*/manifest.json") for run in read_run(path.parent).all_runs}
    named = set(re.findall(r"`([0-9a-f]{16})`", text))
    assert named == known, "the cells of all runs are listed, and no other is named"


def test_every_picture_is_committed(text: str) -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    assert len(pictures) > 10
    assert all((PAGE.parent / path).is_file() for path in pictures)


def test_each_of_the_ten_has_a_state_and_cells_or_says_open(text: str) -> None:
    sections = re.split(r"^## ", text, flags=re.MULTILINE)
    numbered = [section for section in sections if section[0].isdigit()]
    assert len(numbered) == len(SECTIONS) == 10
    for section in numbered:
        state = re.search(r"\*\*(Settled|In part|Open)\.\*\*", section)
        assert state, section[:80]
        assert state.group(1) == "Open" or re.search(r"`[0-9a-f]{16}`", section) or section.startswith(("7", "9", "10"))


def test_nothing_is_said_of_a_gpu_while_no_run_is_of_one(text: str) -> None:
    if not any(run.on_gpu for run in published(RUNS)):
        assert "No run on a GPU is published yet" in text
        assert re.search(r"^\| 8 \| Energy an image \| open \|", text, re.MULTILINE)


def test_what_is_said_of_real_gpus_is_what_the_rows_give(text: str) -> None:
    """The medians of section 10 by another route: the records and `statistics`, not pandas."""
    rows = [
        row
        for row in published_steps()
        if row.mode == "train"
        and row.device == "NVIDIA GeForce RTX 3090"
        and row.devices == 1
        and row.precision.startswith("amp-")
        and row.utilization_ratio is not None
    ]
    section = text.partition("\n## 10. ")[2].partition("\n## ")[0]
    used = [row.utilization_ratio for row in rows]
    models = len({row.counted_model for row in rows})
    assert (
        f"{percent(median(used))} of the dense peak is the median of {len(rows):,} rows of {models} models" in section
    )
    assert f"with {percent(max(used))}." in section
    for family in ("vgg", "resnet", "efficientnet"):
        mine = [row.utilization_ratio for row in rows if row.family == family]
        assert re.search(rf"^\| {family} \| {len(mine):,} \|.*\| {percent(median(mine))} \|", section, re.MULTILINE)
    # resnet50 on an A40 at the same power limit, from 8 to 64, medians over optimizers: worked out without pandas
    rates: dict = {}
    for row in published_steps():
        if row.source == "Zeus" and row.status == "ok" and row.device == "NVIDIA A40":
            rates.setdefault((row.power_limit_w, row.batch_size), []).append(row.items_per_s)
    limits = {limit for limit, _ in rates if (limit, 8) in rates and (limit, 64) in rates}
    grown = median(median(rates[limit, 64]) / median(rates[limit, 8]) for limit in limits)
    assert f"| train, Zeus, A40, precision not said | 8 → 64 | {len(limits)} | 1 | {grown:.3g} |" in section
    assert "Batch size in training: of resnet50 alone, on 4 cards (Zeus' epochs), " in section


# --- what sections work out ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> list[Published]:
    """Two made-up runs of an H200, with the tables that their rows give, and a bandwidth of their device."""
    folder = tmp_path_factory.mktemp("published")
    path = made_up_evidence.write(folder / "h200")
    other = run_fixture.write_profiled_run(folder / "h100", made_up_evidence.H200)
    for each in (path, other):
        built = build(
            read_run(each), lambda t, p=each: read_operations(p, t)[0], lambda c, a, p=each: read_profile(p, c, a)
        )
        for file, content in derived_tables(built):
            put(each / file, content)
    row = Ceiling(
        sitting="",
        device="cuda",
        precision="",
        unit="",
        operation="copy",
        shape="x",
        family="memory",
        bytes_per_s=4e12,
        device_name=made_up_evidence.H200,
    )
    slow = replace(row, bytes_per_s=3e12)
    cached = replace(row, bytes_per_s=9e12, family="cache")
    alien = replace(row, bytes_per_s=8e12, device_name="NVIDIA B200")
    put(folder / "roofs" / "ceilings.csv", to_csv([row, slow, cached, alien], Ceiling))
    return [run for run in published(folder) if run.name == "h200"] + [
        run for run in published(folder) if run.name == "h100"
    ]


def test_low_utilization_is_told_of_every_run_of_the_machine() -> None:
    """Two runs of one machine have intervals that do not overlap: the page quotes both and says what is in neither."""
    runs = three_runs()
    section = low_utilization.low_utilization(runs, "")
    rows = {
        run.name: row
        for run in runs
        for cell in run.measured_cells
        if (cell.model, cell.batch_size) == ("mobilenet_v2", 4) and (row := run.headline(cell)) is not None
    }
    first, second = rows[THREE[0]], rows[THREE[1]]
    assert (second.utilization_high_ratio or 0) < (first.utilization_low_ratio or 0)  # by their own CSV files
    for row in (first, second):
        assert f"{100 * (row.utilization_ratio or 0):.3g} (" in section.answer
        assert row.cell_id in section.answer
    (line,) = [line for line in section.body[0].splitlines() if "Between runs" in line]
    assert "is not in it" in line
    mobilenet, efficientnet = line.index("of mobilenet_v2"), line.index("of efficientnet_b0")
    assert "do not overlap" in line[mobilenet:]
    assert "% overlap" in line[efficientnet:mobilenet]


def test_the_widest_run_speaks_and_a_bound_is_told_where_a_bandwidth_is_published() -> None:
    """Of the three that of 2026-11-21 has 13 models, the later one five and a bandwidth beside it."""
    runs = three_runs()
    assert widest(runs)[0].name == THREE[1]
    noisy = next(run for run in runs if run.name == THREE[2])
    assert low_utilization.bounded(runs) is noisy
    assert low_utilization.bounded([run for run in runs if run is not noisy]) is None
    plain = {(cell.model, cell.batch_size) for cell in common_settings(noisy.measured_cells)}
    assert len(common_settings(noisy.measured_cells)) == len(plain) == 15  # without channels_last and bf16
    text = low_utilization.low_utilization(runs, "").body[3]
    rows = {t.run.model: t for t in findings_traffic.traffic(noisy, 4)}
    low = rows["mobilenet_v2"]
    assert low.attainable_ratio is not None
    assert low.products_ratio is not None
    assert f"1/{low.attainable_ratio / low.used_ratio:.2g} of theirs" in text
    assert f"{100 * low.used_ratio / low.products_ratio:.2g} % of the peak: their kernels" in text
    assert "bandwidth alone does not explain it" in text


def test_precisions_are_told_from_the_plainest_on() -> None:
    assert sorted(["amp-bf16", "tf32", "fp32"], key=lambda each: findings_times._place("precision", each))[0] == "fp32"
    assert sorted([8, 64, 16], key=lambda each: findings_times._place("batch_size", each)) == [8, 16, 64]


def test_a_gpu_closes_what_it_can(gpu: list[Published]) -> None:
    text = page(gpu, "../published")
    assert "No run on a GPU" not in text
    assert findings_times.energy(gpu, "").state == SETTLED
    compared = findings_times.conditions_compared(gpu, "")
    assert compared.state == IN_PART
    assert "layout, compile: open" in compared.answer
    assert "by precision " in compared.answer


def test_energy_an_image_by_hand(gpu: list[Published]) -> None:
    """420 W × step time ÷ images."""
    section = findings_times.energy(gpu[:1], "")
    joules = made_up_evidence.POWER_W * made_up_evidence.step_s("tf32", 8) / 8
    (line,) = [line for line in section.body[0].splitlines() if "| tf32 |" in line]
    assert float(line.split(" | ")[4]) == pytest.approx(joules * 1e3, rel=5e-3)


def test_items_a_second_by_batch_are_those_of_the_times(gpu: list[Published]) -> None:
    rows = findings_times._pairs(gpu[0], "batch_size")
    gains = [gain for _, gain, _ in rows]
    share = [size / (size + 4) for size in (8, 16, 32)]  # of made_up_evidence
    assert sorted(gains) == pytest.approx(sorted((share[1] / share[0], share[2] / share[1])), rel=1e-6)


def test_bandwidth_is_of_memory_and_of_this_device(gpu: list[Published]) -> None:
    assert bandwidth(gpu[0].path.parent, made_up_evidence.H200) == (4e12, "roofs")
    assert bandwidth(gpu[0].path.parent, "NVIDIA L40S") is None


def test_attainable_by_hand() -> None:
    """Two groups: one takes as long as its FLOP do, the other the second that its bytes take."""
    operations = made_up_evidence.table(8, "fp32")[:2]
    first, second = run_fixture.FIRST_MAC * 16, run_fixture.SECOND_MAC * 16
    peak, bytes_per_s = 1e12, 1e9
    groups = [(0, 1000), (1, 10**9)]
    least_s = first / peak + 1.0  # the first by its FLOP, the second by its bytes
    expected = (first + second) / peak / least_s
    assert findings_traffic.attainable(operations, groups, peak, bytes_per_s) == pytest.approx(expected)
    assert findings_traffic.attainable(operations, groups, None, bytes_per_s) is None


def test_without_runs_that_say_it_a_section_is_open(tmp_path: Path) -> None:
    run = Published(
        made_up_evidence.write(tmp_path / "run", made=made_up_evidence.parts((("fp32", 8, 0),))),
        read_run(tmp_path / "run"),
    )
    for section in (
        low_utilization.low_utilization,
        findings_counts.counters,
        findings_counts.backward_forward,
        findings_counts.figures_of_the_post,
        findings_times.conditions_compared,
        findings_times.energy,
    ):
        assert section([run], "").state == OPEN, section.__name__


def test_operation_tables_as_found_and_as_cleaned(gpu: list[Published], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings_counts, "TABLE_MODEL", "resnet18")
    forward, backward = findings_counts._operation_tables(gpu)
    assert "| `aten::convolution_backward` | 2 | unknown |" in backward  # no number is not 0
    assert "| all | 4 | at least 10.2 kFLOP |" in backward
    assert "2 under" in backward
    flop = 2 * 8 * (run_fixture.FIRST_MAC + run_fixture.SECOND_MAC) / 1e9
    assert f"| `aten::conv2d` | 2 | {flop:.2f} GFLOP | {flop:.2f} GFLOP | 2 right |" in forward


def test_words() -> None:
    assert table(("a", "b"), [("1|2", "x\ny")]) == "| a | b |\n| --- | --- |\n| 1\\|2 | x y |"
    assert largest_batch(read_run(RUNS / "amd-epyc-2-cores-2026-11-20").runs) == 4


def test_our_own_fractions_stand_beside_published_ones(gpu: list[Published]) -> None:
    beside, assumed = findings_published.beside_published(gpu, ""), findings_published.to_assume(gpu, "")
    assert "ours, over the datasheet" in beside.body[0]
    assert "none of ours" not in assumed.body[0]
    without = findings_published.to_assume([], "")
    assert "none of ours" in without.body[0]
    assert without.body[1] != assumed.body[1], "ours count"


def test_the_command(
    gpu: list[Published], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(command.main, capsys)
    place = tmp_path / "published"
    shutil.copytree(gpu[0].path.parent, place)
    code, out, err = run(place, "--findings", tmp_path / "docs" / "f.md")
    assert (code, out) == (0, "")
    assert err.startswith("written: ")
    assert "(../published/h200/runs.csv)" in (tmp_path / "docs" / "f.md").read_text(encoding="utf-8")
    refused(run(tmp_path / "nowhere", "--findings", tmp_path / "f.md"), "expected a folder of published runs")
    refused(run(place, place, "--findings", tmp_path / "f.md"), "--findings: expected at most the folder")
    (tmp_path / "file").write_text("x")
    code, out, err = run(place, "--findings", tmp_path / "file" / "f.md")
    assert (code, err.count("\n")) == (3, 1)
    refused(run(), "required: RUN")


def test_attainable_adds_the_bytes_of_a_group_exactly() -> None:
    """One byte a second: a byte more would be a second more."""
    operations = made_up_evidence.table(8, "fp32")[:2]
    flop = (run_fixture.FIRST_MAC + run_fixture.SECOND_MAC) * 16
    found = findings_traffic.attainable(operations, [(0, 3), (0, 4)], 1e18, 1.0)
    assert found == pytest.approx(flop / 1e18 / 7)


def fraction(used: float | None, low: float | None, high: float | None) -> SimpleNamespace:
    """What a dot needs of a row without an interval of any window."""
    ends = {"utilization_low_ratio": low, "utilization_high_ratio": high}
    return SimpleNamespace(utilization_ratio=used, windows_low_ratio=None, windows_high_ratio=None, **ends)


@pytest.mark.parametrize(
    ("used", "high", "ends"), [(0.25, 0.3, [20, 30]), (0.25, None, [20, 40]), (None, None, [20, 40])]
)
def test_a_dot_is_at_its_percentage_with_its_interval(used, high, ends) -> None:
    row = fraction(used, 0.2, high)
    each = SimpleNamespace(run=SimpleNamespace(model="vgg11"), unfused_flop_per_byte=7.0, row=row)
    axes = Figure().subplots()
    findings_figure._dot(axes, each, 40.0)
    interval, dot = axes.lines
    assert interval.get_ydata() == pytest.approx(ends)
    assert (list(dot.get_xdata()), list(dot.get_ydata())) == ([7.0], [100 * (used or 0)])


def test_a_name_is_beside_a_neighbours_interval_where_there_is_a_place() -> None:
    """The second dot is 75 points above the first and 9 to its right, its interval reaches down beside the first."""

    def dot(model: str, flop_per_byte: float, used: float, low: float | None) -> SimpleNamespace:
        row = fraction(used, low, None)
        return SimpleNamespace(run=SimpleNamespace(model=model), unfused_flop_per_byte=flop_per_byte, row=row)

    axes = Figure().subplots()
    axes.set(xscale="log", xlim=(1, 100), ylim=(0, 100))
    findings_figure._name(axes, [dot("vgg11", 10.0, 0.5, None), dot("vgg19", 11.0, 0.8, 0.1)])
    first, second = axes.texts
    assert first.xyann[0] < -5 * findings_figure._LETTER_PT, "left of its dot, ending before it"
    assert second.xyann == (6.0, -2.5)
