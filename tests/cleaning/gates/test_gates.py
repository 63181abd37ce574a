"""Injected fault, known answer, command: each gate catches its own fault, alone; published runs are held."""

import csv
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cleaning.gates.evidence import SELF_TEST_FILE, facts_of
from cleaning.gates.gates import GATES, judge
from cleaning.gates.times import at_most_one, ceiling_load, ceiling_rate
from results.records.answers import FAIL, OPEN, PASS, Verdict
from results.records.cell import Ceiling
from results.store.store import read_run
from runners import report as command
from runners.rebuild import evidence_of
from tests.support.fakes.commands import refused, running
from tests.support.made_up import made_up_device, made_up_evidence
from tests.support.made_up.checksums import recompute_checksums
from tests.support.made_up.made_up_evidence import Part, Parts
from tests.support.made_up.made_up_runs import a_run

ROOT = Path(__file__).parents[3]
PUBLISHED, EVIDENCE = ROOT / "results" / "published", (ROOT / "docs" / "evidence.md").read_text(encoding="utf-8")
BF16, TF32, FP32 = ("amp-bf16", 8, 0), ("tf32", 8, 0), ("fp32", 8, 0)
AGAIN, LARGE = ("amp-bf16", 8, 1), ("amp-bf16", 32, 0)

Plant = Callable[[Parts], object]


def verdicts(path: Path) -> dict[str, Verdict]:
    return {verdict.gate: verdict for verdict in judge(evidence_of(path))}


def failing(path: Path) -> dict[str, Verdict]:
    return {name: verdict for name, verdict in verdicts(path).items() if verdict.verdict == FAIL}


# --- faults of rows, planted before they are written -----------------------------------------------------------------


def run_with(key: tuple[str, int, int], **fields: Any) -> Plant:
    """A field of a cell's row is another."""

    def plant(parts: Parts) -> None:
        part = parts.cells[key]
        part.run = replace(part.run, **fields)

    return plant


def flag(key: tuple[str, int, int], name: str, value: object, when: str = "flags_before") -> Plant:
    def plant(parts: Parts) -> None:
        part = parts.cells[key]
        part.run = replace(part.run, **{when: {**getattr(part.run, when), name: value}})

    return plant


def preflight(**facts: object) -> Plant:
    def plant(parts: Parts) -> None:
        first = parts.sessions[0]
        parts.sessions[0] = replace(first, preflight={**first.preflight, **facts})

    return plant


def option(name: str, value: object) -> Plant:
    def plant(parts: Parts) -> None:
        parts.manifest = replace(parts.manifest, options={**parts.manifest.options, name: value})

    return plant


def second_session(parts: Parts) -> None:
    parts.sessions.append(made_up_evidence.session(name="s2"))
    parts.cells[FP32].run = replace(parts.cells[FP32].run, session="s2")
    parts.ceilings += [replace(each, session="s2") for each in parts.ceilings]


def dirty_code(parts: Parts) -> None:
    measured_by(parts, f"{parts.sessions[0].environment['harness_version']}.dirty")


def code_of_no_commit(parts: Parts) -> None:
    measured_by(parts, str(parts.sessions[0].environment["harness_version"]).partition("+")[0])


def measured_by(parts: Parts, version: str) -> None:
    first = parts.sessions[0]
    parts.sessions[0] = replace(first, environment={**first.environment, "harness_version": version})
    parts.manifest = replace(parts.manifest, harness_version=version)
    parts.self_test = parts.self_test and replace(parts.self_test, harness_version=version)


def recounted(part: Part) -> None:
    """The real step did what the table says: the fault is in both, so that only the table's own laws can show it."""
    part.storages = made_up_evidence.storages_of(part.operations)
    part.run = replace(part.run, executed=dict(facts_of(part.operations, part.storages).executed))


def duplicated_operation(parts: Parts) -> None:
    part = parts.cells[TF32]
    part.operations.insert(2, part.operations[1])
    part.operations = [replace(each, index=i) for i, each in enumerate(part.operations)]
    recounted(part)


def table_of_another_batch(parts: Parts) -> None:
    """The cell says 32; what was trained and counted was a batch of 16."""
    part = parts.cells[LARGE]
    part.operations = made_up_evidence.table(16, "amp-bf16")
    recounted(part)


def half_executed(parts: Parts) -> None:
    """Our own count is off by 2: the device did half of it."""
    part = parts.cells[TF32]
    part.run = replace(part.run, executed={name: flop // 2 for name, flop in part.run.executed.items()})


def no_input_gradient(parts: Parts) -> None:
    """The second convolution's backward pass leaves out the gradient that the first one needs."""
    part = parts.cells[TF32]
    call = part.operations[6]
    mask = {**call.attributes, "output_mask": [False, True, False]}
    part.operations[6] = replace(
        call, attributes=mask, output_shapes=call.output_shapes[1:], output_dtypes=call.output_dtypes[1:], writes=(12,)
    )
    part.operations[7] = replace(part.operations[7], reads=(14, 0, 1))
    recounted(part)


def wider(part: Part, classes: int) -> None:
    """A classifier of another width, in both passes, of a model of as many parameters."""
    shapes = {4: 10}
    for index in (3, 4, 5):
        call = part.operations[index]
        change = [tuple(classes if size == shapes[4] else size for size in shape) for shape in call.input_shapes]
        out = [tuple(classes if size == shapes[4] else size for size in shape) for shape in call.output_shapes]
        part.operations[index] = replace(call, input_shapes=tuple(change), output_shapes=tuple(out))
    recounted(part)


def bent_law(parts: Parts) -> None:
    wider(parts.cells[LARGE], 11)


def mac_taken_for_flop(parts: Parts) -> None:
    of_every_cell(parts, "fvcore", lambda row: replace(row, native_unit="flop", flop=row.native_value))


def of_every_cell(parts: Parts, counter: str, change: Callable[[Any], Any]) -> None:
    """What one counter says in all cells is another: its own law holds."""
    for part in parts.cells.values():
        part.counts = [change(row) if row.counter == counter else row for row in part.counts]


def duplicated_in_the_profile(parts: Parts) -> None:
    part = parts.cells[BF16]
    last = part.profile[-1]
    again = replace(part.profile[2], index=last.index + 1, start_s=last.start_s + 1)
    part.profile.append(again)


def every_sample(key: tuple[str, int, int], change: Callable[[Any, int], Any]) -> Plant:
    def plant(parts: Parts) -> None:
        part = parts.cells[key]
        part.samples = [change(sample, i) for i, sample in enumerate(part.samples)]

    return plant


def times(factor: float, *keys: tuple[str, int, int]) -> Plant:
    """Cells whose blocks take `factor` of their time, with window, polls and energy to go with it."""

    def plant(parts: Parts) -> None:
        for key in keys:
            part = parts.cells[key]
            run = part.run
            blocks = made_up_evidence.samples(run, made_up_evidence.step_s(run.precision, run.batch_size) * factor)
            end_s = blocks[-1].start_s + blocks[-1].wall_s
            short = ("energy: window is shorter than 5 s",) if end_s < 105.0 else ()
            part.run = replace(
                run, window_end_s=end_s, energy_j=made_up_evidence.POWER_W * (end_s - 100.0), warnings=short
            )
            part.samples, part.telemetry = blocks, made_up_evidence.telemetry(run, end_s)

    return plant


def overlapping(sample: Any, index: int) -> Any:
    return replace(sample, start_s=sample.start_s - (0.4 * sample.wall_s if index == 4 else 0))


def only_issued(sample: Any, index: int) -> Any:
    """The host's clock stopped before the device was done."""
    return replace(sample, wall_s=sample.wall_s / 5)


def too_many_products(parts: Parts) -> None:
    """A counter that sees everything 200 times: no unit is mistaken, and no device does that."""
    of_every_cell(parts, "ptflops", lambda row: replace(row, native_value=200 * row.native_value, flop=200 * row.flop))


def polls(key: tuple[str, int, int], change: Callable[[Any, int], Any]) -> Plant:
    def plant(parts: Parts) -> None:
        part = parts.cells[key]
        part.telemetry = [change(poll, i) for i, poll in enumerate(part.telemetry)]

    return plant


def without_polls(parts: Parts) -> None:
    parts.cells[TF32].telemetry = []


def at_clock(value: int) -> Callable[[Any, int], Any]:
    return lambda poll, index: replace(poll, sm_clock_hz=value)


def stalled(poll: Any, index: int) -> Any:
    """The counter stands still for 2 s, then goes on as if nothing had been."""
    held = 5000.0 + made_up_evidence.POWER_W * 8 / 4
    return replace(poll, energy_j=held) if 8 <= index < 17 else poll


def backwards(poll: Any, index: int) -> Any:
    return replace(poll, energy_j=poll.energy_j - 2000 * (index > 10))


def double_power(poll: Any, index: int) -> Any:
    return replace(poll, power_w=2 * made_up_evidence.POWER_W)


def of_the_fastest_ceiling(**fields: object) -> Plant:
    """A field of the row that the bf16 cells are divided by is another."""

    def plant(parts: Parts) -> None:
        rows = [each for each in parts.ceilings if each.unit == "bf16" and each.flop_per_s]
        fastest = max(rows, key=lambda each: each.flop_per_s)
        parts.ceilings = [replace(each, **fields) if each is fastest else each for each in parts.ceilings]

    return plant


def stand_in(parts: Parts) -> None:
    first = parts.sessions[0]
    parts.sessions[0] = replace(first, environment={**first.environment, "stand_in": True})


PLANTS: dict[str, tuple[str, Plant]] = {
    "a device that stands in for another": ("hardware", stand_in),
    "a ceiling of another number of FLOP": ("ceiling_rate", of_the_fastest_ceiling(flop=1)),
    "a ceiling that was timed beside others": (
        "ceiling_load",
        of_the_fastest_ceiling(reason="note: others used 8% of the processors while this was timed"),
    ),
    "code that was not committed": ("one_machine", dirty_code),
    "code of no known commit": ("one_machine", code_of_no_commit),
    "tf32 labelled fp32, convolutions": ("flags", flag(FP32, "cudnn.conv.fp32_precision", "tf32")),
    "tf32 labelled fp32, products, after the cell": (
        "flags",
        flag(FP32, "cuda.matmul.fp32_precision", "tf32", "flags_after"),
    ),
    "tf32 switched on below the flags": ("flags", flag(FP32, "env.NVIDIA_TF32_OVERRIDE", "1", "flags_after")),
    "a unit that the precision does not name": ("flags", run_with(TF32, matmul_unit="fp32")),
    "a duplicated operation": ("operations_once", duplicated_operation),
    "a batch mislabelled, in the table": ("batch", table_of_another_batch),
    "a batch mislabelled, in the items": ("batch", run_with(LARGE, items_per_step=16)),
    "our own count off by 2": ("executed", half_executed),
    "a gradient that is left out": ("backward_forward", no_input_gradient),
    "a count that is not affine": ("affine", bent_law),
    "a counter off by 2: multiply-adds taken for FLOP": ("conventions", mac_taken_for_flop),
    "a product twice in a profile": ("profiles", duplicated_in_the_profile),
    "blocks that overlap": ("synchronised", every_sample(TF32, overlapping)),
    "a host clock that did not wait": ("synchronised", every_sample(TF32, only_issued)),
    "a numerator far too high": ("at_most_one", too_many_products),
    "an interval that stayed wide": ("converged", run_with(TF32, status="not_converged", reason="±1 %")),
    "a loss that is not finite": ("losses", run_with(TF32, last_loss=None, warnings=("loss: nan",))),
    "another process on the GPU": ("alone", preflight(other_processes=1)),
    "a process that came to the GPU": ("alone", run_with(TF32, warnings=("shared_device: 1 other process",))),
    "no telemetry": ("clock", without_polls),
    "an idle clock": ("clock", polls(TF32, at_clock(345_000_000))),
    "a clock above the highest": ("clock", polls(TF32, at_clock(2_400_000_000))),
    "a stalled energy counter": ("energy", polls(TF32, stalled)),
    "an energy counter that goes backwards": ("energy", polls(TF32, backwards)),
    "a counter that power contradicts": ("energy", polls(TF32, double_power)),
}


def planted(path: Path, plant: Plant) -> Path:
    """The run with one fault: of three cells where these are all that the fault needs, else of the whole grid."""
    small, whole = made_up_evidence.parts((BF16, TF32, FP32)), made_up_evidence.parts()
    try:
        plant(small)
    except KeyError:
        return made_up_evidence.write(path, plant, whole)
    return made_up_evidence.write(path, made=small)


@pytest.mark.parametrize("fault", PLANTS)
def test_a_planted_fault_turns_its_gate_red_and_no_other(fault: str, tmp_path: Path) -> None:
    gate, plant = PLANTS[fault]
    found = failing(planted(tmp_path / "run", plant))
    assert set(found) == {gate}, {name: verdict.found for name, verdict in found.items()}
    assert all(found[gate].found.values())


def of_no_record(factor: float) -> Plant:
    """The same model by another name, for which there is no record to beat."""

    def plant(parts: Parts) -> None:
        times(factor, TF32)(parts)
        made_up_evidence.renamed(parts, TF32, "resnet18")

    return plant


EDGES: dict[str, tuple[str, Plant, Plant]] = {
    "1.25 × a ceiling of 380 TFLOP/s": ("possible_time", of_no_record(0.0071), of_no_record(0.0068)),
    "5 % of the processors": ("alone", run_with(TF32, others_cpu_ratio=0.049), run_with(TF32, others_cpu_ratio=0.051)),
    "0.9 of the highest clock": (
        "clock",
        polls(TF32, at_clock(1_790_000_000)),
        polls(TF32, at_clock(1_775_000_000)),
    ),
    "1.1 × the power limit": ("energy", preflight(power_limit_w=385.0), preflight(power_limit_w=380.0)),
    "1.02 × multiprocessors × rate × highest clock": (
        "peak",
        option("peak_tflops", 1090.0),
        option("peak_tflops", 1093.0),
    ),
}
"""What a limit is → its gate, a run just inside of it, one just outside."""


@pytest.mark.parametrize("limit", EDGES)
def test_a_limit_is_where_it_says(limit: str, tmp_path: Path) -> None:
    gate, inside, outside = EDGES[limit]
    assert failing(planted(tmp_path / "inside", inside)) == {}
    assert set(failing(planted(tmp_path / "outside", outside))) == {gate}


def test_a_run_without_fault_passes_every_gate(clean: Path) -> None:
    answers = [(name, verdict.verdict, verdict.asked > 0) for name, verdict in verdicts(clean).items()]
    assert answers == [(gate.name, PASS, True) for gate in GATES]


def test_every_gate_has_a_planted_fault_and_a_row_in_the_document() -> None:
    on_disk = {"committed", "one_machine", "self_test"}
    planted_gates = {gate for gate, *_ in (*PLANTS.values(), *EDGES.values())}
    assert planted_gates | on_disk == {gate.name for gate in GATES}
    assert {f"| `{gate.name}` | {gate.checks} |" for gate in GATES} <= {*EVIDENCE.splitlines()}


# --- faults of files -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run without fault."""
    return made_up_evidence.write(tmp_path_factory.mktemp("clean") / "run")


@pytest.fixture
def copy(clean: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(clean, tmp_path / "run"))


def edit(path: Path, change: Callable[[dict[str, str]], None], where: Callable[[dict[str, str]], bool]) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in filter(where, rows):
        change(row)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def test_a_time_edited_by_hand_is_not_what_was_committed(copy: Path) -> None:
    (cell_id, *_) = (run.cell_id for run in read_run(copy).runs if run.precision == "tf32")
    path = copy / "samples.csv"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith(cell_id) and ",measure," in line)
    lines[at] = lines[at].replace(",measure,", ",warmup,")
    path.write_text("".join(lines), encoding="utf-8")
    found = failing(copy)
    assert set(found) == {"committed"}
    assert found["committed"].cell_ids == (cell_id,)


@pytest.mark.parametrize(("field", "value"), [("torch_version", "2.14.0"), ("device_name", "NVIDIA H200 NVL")])
def test_sessions_that_do_not_belong_together(tmp_path: Path, field: str, value: str) -> None:
    """As two runs thrown together by hand: the store itself would refuse the second."""
    path = made_up_evidence.write(tmp_path / "run", second_session)
    assert set(failing(path)) == set()
    edit(path / "sessions.csv", lambda row: row.update({field: value}), lambda row: row["session"] == "s2")
    assert "committed" in failing(path)
    recompute_checksums(path)
    found = failing(path)
    assert set(found) == {"one_machine"}
    assert f"s1 and s2 differ in {field}" in found["one_machine"].found["run"]


# --- what gates do not claim -----------------------------------------------------------------------------------------


def test_a_gate_without_data_is_open_and_says_what_it_needs(tmp_path: Path) -> None:
    path = made_up_evidence.write(tmp_path / "run", made=made_up_evidence.parts((FP32,)))
    found = verdicts(path)
    still_open = {name: verdict.reason for name, verdict in found.items() if verdict.verdict == OPEN}
    assert set(still_open) == {"affine", "profiles"}
    assert still_open["affine"] == "needs three batches of one model"


def test_a_gpu_run_without_a_self_test_is_not_to_be_published(clean: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(clean, tmp_path / "run"))
    (path / SELF_TEST_FILE).unlink()
    found = verdicts(path)
    assert {name for name, verdict in found.items() if verdict.verdict == OPEN and verdict.needed} == {"self_test"}
    assert command.main([str(path), "--check"]) == 1
    (path / SELF_TEST_FILE).write_text("{", encoding="utf-8")
    assert set(failing(path)) == {"self_test"}
    assert "cannot be read" in failing(path)["self_test"].found["run"]


def test_fp32_above_one_is_allowed_where_it_is_marked(tmp_path: Path) -> None:
    """Winograd: vector units seem faster than they are, up to 4 times; the row says so."""
    parts = made_up_evidence.parts((FP32,))
    fast = [each for each in parts.ceilings if each.operation == "convolution"]  # so fast as well
    fast = [replace(each, family="winograd") if each.unit == "fp32" else each for each in fast]
    parts.ceilings = [made_up_device.at_rate(each, 90e12) if each.unit == "fp32" else each for each in fast]
    path = made_up_evidence.write(tmp_path / "run", times(0.025, FP32), parts)
    rows = [row for row in evidence_of(path).rebuilt if row.denominator == "datasheet" and row.method == "exact"]
    assert rows[0].utilization_ratio == pytest.approx(0.05 * 8 / 12 / 0.025)
    assert "above_one" in rows[0].warnings[-1]
    assert verdicts(path)["at_most_one"].verdict == PASS


@pytest.mark.parametrize(
    ("unit", "marks", "holds"),
    [("fp32", ("above_one: 1.2",), True), ("fp32", (), False), ("tf32", ("above_one: 1.2",), False)],
)
def test_a_mark_excuses_more_than_one_where_no_tensor_unit_ran(unit: str, marks: tuple[str, ...], holds: bool) -> None:
    run = a_run("a", convolution_unit=unit, matmul_unit=unit)
    row = SimpleNamespace(
        utilization_ratio=1.2, denominator="datasheet", method="exact", numerator_source="exact", warnings=marks
    )
    evidence: Any = SimpleNamespace(measured_cells=[run], fractions={("a", 1): [row]})
    assert [finding.holds for finding in at_most_one(evidence)] == [holds]


@pytest.mark.parametrize(
    ("operation", "unit", "algorithm", "rate", "words"),
    [
        ("convolution", "fp32", "winograd", 90e12, ""),
        ("convolution", "fp32", "fft", 90e12, ""),
        ("convolution", "fp32", "", 60e12, ""),  # 66.9 TFLOP/s by the sheet
        ("convolution", "fp32", "", 90e12, "and no fast algorithm is named"),
        ("convolution", "fp32", "implicit", 90e12, "and no fast algorithm is named"),
        ("convolution", "fp32", "winograd", 300e12, "with winograd"),  # more than 4 times the sheet
        ("matmul", "fp32", "winograd", 90e12, "its unit has"),
        ("convolution", "bf16", "winograd", 1100e12, "its unit has"),
    ],
)
def test_only_a_named_fast_algorithm_is_above_the_sheet(
    clean: Path, operation: str, unit: str, algorithm: str, rate: float, words: str
) -> None:
    evidence = evidence_of(clean)
    first = next(
        row for row in evidence.data.ceilings if row.status == "ok" and row.operation in ("matmul", "convolution")
    )
    row = replace(first, operation=operation, unit=unit, family=algorithm, flop_per_s=rate)
    found = list(ceiling_rate(replace(evidence, data=replace(evidence.data, ceilings=(row,)))))
    assert found[-1].holds == (not words)
    assert words in found[-1].text


def kernel_of(session: str, median_s: float, trip_s: float | None, reason: str = "") -> Ceiling:
    return Ceiling(
        session=session, device="cpu", precision="amp-bf16", unit="bf16", operation="convolution", shape="2x512x14x14",
        median_s=median_s, best_s=median_s, flop_per_s=1e9 / median_s, core_round_trip_s=trip_s, reason=reason,
    )  # fmt: skip


def divided_by(rows: list[Ceiling], used: list[Ceiling] | None = None) -> Any:
    """Evidence of a run with these ceilings, and a cell of the session, device and precision of each (of `used`)."""
    names = "session", "device", "precision", "malloc"
    runs = [SimpleNamespace(**{name: getattr(row, name) for name in names}) for row in (used or rows)]
    return SimpleNamespace(data=SimpleNamespace(ceilings=rows, runs=runs))


def test_ceilings_of_a_session_whose_cells_were_all_measured_again_are_not_asked() -> None:
    """Nothing is divided by them; the other precision of that session still is."""
    busy = kernel_of("s0", 4e-3, 9e-8, "note: others used 9% of the processors while this was timed")
    other, later = replace(busy, precision="fp32", unit="fp32"), kernel_of("s1", 2e-3, 9e-8)
    evidence = divided_by([busy, other, later], [other, later])
    assert [found.text[:8] for found in ceiling_load(evidence)] == ["s0 fp32 ", ""]


# --- the command -----------------------------------------------------------------------------------------------------


def test_exit_codes_and_formats(clean: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = running(command.main, capsys)
    before = {path: path.read_bytes() for path in clean.rglob("*") if path.is_file()}
    code, out, err = run(clean, "--check")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100
    assert out.splitlines()[0] == f"{len(GATES)} gates: {len(GATES)} passed, 0 failed, 0 open"
    assert {path: path.read_bytes() for path in clean.rglob("*") if path.is_file()} == before, "nothing is written"
    wrong = made_up_evidence.write(tmp_path / "wrong", flag(FP32, "cudnn.conv.fp32_precision", "tf32"))
    code, out, _ = run(wrong, "--check")
    assert code == 1
    assert "resnet50 b8 fp32 (" in out
    assert "found tf32" in " ".join(out.split())
    code, out, _ = run(wrong, "--check", "--format", "csv")
    rows = list(csv.DictReader(out.splitlines()))
    assert [row["gate"] for row in rows if row["verdict"] == "fail"] == ["flags"]
    code, out, _ = run(wrong, "--check", "--format", "json")
    documents = json.loads(out)
    (failed,) = (row for row in rows if row["verdict"] == "fail")
    assert [d["cell_ids"] for d in documents if d["verdict"] == "fail"] == [[failed["cell_ids"][2:-2]]]
    refused(run(tmp_path / "nowhere", "--check"), "expected the directory of a run")
    refused(run(clean, "--chek"), "nearest --check")


EXPLAINED: dict[str, set[str]] = {}
"""Published run → gates that it is known to fail, each with its reason."""


def published() -> list[Any]:
    """Every published run; the one without profiles has 208 cells, which take their time."""
    found = sorted(path.parent for path in PUBLISHED.glob("*/manifest.json"))
    return [pytest.param(path.name, marks=() if (path / "profiles").is_dir() else pytest.mark.slow) for path in found]


@pytest.mark.parametrize("name", published())
def test_a_published_run_passes_but_for_what_is_explained(name: str) -> None:
    every = verdicts(PUBLISHED / name)
    found = {gate: verdict for gate, verdict in every.items() if verdict.verdict == FAIL}
    assert set(found) == EXPLAINED.get(name, set())
    still_open = {gate for gate, verdict in every.items() if verdict.verdict == OPEN and verdict.needed}
    assert still_open == set()
