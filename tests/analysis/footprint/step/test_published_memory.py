"""What others measured of a GPU's memory: the table, what it is turned into, the page's section, predictions again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from analysis.footprint.step import published as step_published
from analysis.footprint.step.live_bytes import BEFORE
from analysis.footprint.step.published import Published, as_measured, predicted_bytes, published
from benchmarks.pages.footprint import main, read_published
from reports.footprint.published import section
from results.records import Storage
from results.records.footprint import FootprintPrediction
from runners.footprint.published_task import predict
from runners.footprint.step import StepOptions, trace_batch
from tests.support.made_up_operations.made_up_operations import operation

ROOT = Path(__file__).parents[4]
PREDICTED = read_published(ROOT / "tests/data/footprint")
SMALL = "mobilenet_v3_small b10, 20241126-215342-ca9a"
MIB = 2**20
ROW = Published(
    name="m b2", model="m", batch_size=2, precision="fp32", optimizer="sgd", quantity="allocated", measured_bytes=1000,
    within_bytes=1, source="https://here", assumed="nothing",
)  # fmt: skip


PHASES = ("forward", "loss", "backward", "optimizer")
STEP = [replace(operation("aten.mm", {}), index=index, phase=phase) for index, phase in enumerate(PHASES)]
WEIGHT = Storage(0, 3 * MIB, "weight", BEFORE, None)
ACTIVATION = Storage(1, 5 * MIB, "activation", 0, 2)
TEMPORARY = Storage(2, 700, "temporary", 0, 0)
GRADIENT = Storage(3, 3 * MIB, "gradient", 2, None)
LEDGER = [WEIGHT, ACTIVATION, TEMPORARY, GRADIENT]


def asked(quantity: str, moment: str) -> Published:
    return replace(ROW, quantity=quantity, moment=moment)


def test_every_row_has_a_prediction_and_its_place_in_the_page() -> None:
    rows = published()
    assert len(rows) >= 8
    assert [row.name for row in rows] == list(PREDICTED)
    text = (ROOT / "docs" / "footprint.md").read_text(encoding="utf-8")
    assert section(rows, PREDICTED) in text
    assert "None of these measurements is ours" in text
    assert all(
        PREDICTED[row.name].without_bytes == PREDICTED[row.name].predicted_bytes for row in rows if not row.cudnn
    )
    assert PREDICTED["resnet18 b8, all"].without_bytes == 256_684_584 + 8_388_608  # cuBLAS's are there all the time
    assert all(f"<{row.source}>" in text for row in rows)


def test_what_the_page_says_of_the_errors_is_so() -> None:
    """Its sentences, not its table: steps of which workspaces are not in the count, and the longest reach."""
    error = {row.name: PREDICTED[row.name].predicted_bytes / row.measured_bytes - 1 for row in published()}
    for name in ("mobilenet_v2 b32", "mobilenet_v2 b64", "mobilenet_v2 b128", "vgg19 b128", "googlenet b128"):
        assert abs(error[name]) < 0.002
    # two workspaces of cuBLAS, one of cuDNN
    assert error["resnet18 b8, all"] == 0
    assert round(error["resnet50 b32, all"], 4) == 0.0004
    for name, more in (("resnet50 b128, kept", 0.0002), ("resnet50 b128", 0.0001)):
        (row,) = [row for row in published() if row.name == name]
        assert round(error[name], 4) == more
        assert abs(PREDICTED[name].predicted_bytes - row.measured_bytes) < row.within_bytes
        assert round(error[f"{name}, reserved"], 2) == 0.06
    vgg = [-error[f"vgg16 {batch}, process"] / (1 + error[f"vgg16 {batch}, process"]) for batch in ("b32", "b128")]
    assert [round(more, 2) for more in vgg] == [0.05, -0.01]  # than was predicted
    assert round(error["resnet18 b1, after forward, reserved"], 2) == 0.23
    # without workspaces three segments of 20 MiB and nine of 2, where the GPU had ten and one of 26 for cuDNN's
    assert PREDICTED["resnet18 b1, after forward, reserved"].without_bytes == (106 - 26 - 2) * MIB
    (measured,) = [row.measured_bytes for row in published() if row.name == "resnet18 b8, tensors"]
    assert PREDICTED["resnet18 b8, tensors"].predicted_bytes == 256_684_584
    # its highest is a sum of two gradients of 1,605,632 bytes, beside which one block of half of that has gone
    assert measured == 256_684_584 + 1_605_632 - 802_816


@pytest.mark.parametrize("name", ["resnet18 b8, all", "resnet50 b32, tensors", "vit_b_16 b1", SMALL])
def test_predictions_made_again_are_the_rows(name: str) -> None:
    """The first with workspaces, the second with gradients that stay, the third with attention as it was, a loop over
    parameters and a copy of them, the last with 10 classes and small images."""
    (row,) = [row for row in published() if row.name == name]
    assert predict(row) == PREDICTED[name]


def test_an_optimizer_that_loops_has_no_copy_of_all_parameters() -> None:
    """86,567,656 of ViT-B/16: AdamW on lists has one copy of them at its highest, which was measured so."""
    (row,) = [row for row in published() if row.name == "vit_b_16 b2"]
    lists = predict(row)
    assert lists == PREDICTED[row.name]
    loop = predict(replace(row, loop=True))
    assert loop.live_bytes < lists.live_bytes - 0.9 * 4 * 86_567_656


def test_the_command_writes_a_row_a_measurement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one of them, over a file that was there."""
    rows = [row for row in published() if row.name == "resnet18 b1, after forward"]
    monkeypatch.setattr(step_published, "published", lambda: rows)
    (tmp_path / "published.csv").write_text("old", encoding="utf-8")
    assert main(["--published", str(tmp_path)]) == 0
    assert read_published(tmp_path) == {rows[0].name: PREDICTED[rows[0].name]}
    assert capsys.readouterr().out == "resnet18 b1, after forward: -0.07%\n"


def test_a_step_on_cuda_keeps_dropouts_mask_in_bytes() -> None:
    """AlexNet drops of 9,216 and of 4,096 numbers a sample; on a CPU a mask has 4 bytes for each."""
    activations = {}
    for device in ("cpu", "cuda"):
        asked = StepOptions("alexnet", "fp32", "none", device)
        activations[device] = sum(each.nbytes for each in trace_batch(asked, 2).storages if each.role == "activation")
    assert activations["cpu"] - activations["cuda"] == 2 * (9216 + 4096) * (4 - 1)


def test_a_copy_of_the_parameters_and_a_workspace_are_there_all_the_time() -> None:
    """3 + 5 + 3 MiB as the backward pass begins; two copies more, and 8 MiB."""
    assert predicted_bytes(STEP, LEDGER, asked("tensors", "step")) == 11 * MIB
    more = as_measured(STEP, LEDGER, copies=2, beside_bytes=(8 * MIB,))
    assert predicted_bytes(STEP, more, asked("tensors", "step")) == (11 + 6 + 8) * MIB
    assert len({each.id for each in more}) == len(more)


def test_gradients_that_go_late_are_there_in_the_forward_pass_alone() -> None:
    """Their 3 MiB meet 700 bytes in the first operation, nothing more in the loss, and are gone in the backward."""
    late = as_measured(STEP, LEDGER, late_zero=True)
    (gradient,) = [each for each in late if each.role == "gradient" and each.born_index == BEFORE]
    assert gradient.died_index == 1
    assert predicted_bytes(STEP, late, asked("tensors", "step")) == 11 * MIB + 700


def test_gradients_that_stay_have_new_ones_added() -> None:
    """3 MiB more all the time; the 3 MiB of the new one meet the activation and are gone before the optimizer."""
    stay = as_measured(STEP, LEDGER, kept=True)
    assert predicted_bytes(STEP, stay, asked("tensors", "step")) == (3 + 3 + 5 + 3) * MIB
    assert predicted_bytes(STEP, stay, asked("risen", "step")) == (5 + 3) * MIB
    assert sum(each.nbytes for each in stay if each.died_index is None) == 6 * MIB


def test_after_the_forward_pass() -> None:
    """What the forward pass let go is not allocated any more, but its segment is there: of 2 MiB beside one of 20."""
    assert predicted_bytes(STEP, LEDGER, asked("allocated", "forward")) == 8 * MIB
    assert predicted_bytes(STEP, LEDGER, asked("reserved", "forward")) == 22 * MIB
    assert predicted_bytes(STEP, LEDGER, asked("process", "step")) == 22 * MIB
    assert (
        predicted_bytes(STEP, [*LEDGER, replace(GRADIENT, id=9, nbytes=11 * MIB)], asked("reserved", "forward"))
        == 22 * MIB
    )


FAULTS: list[dict[str, object]] = [
    {"quantity": "felt"},
    {"moment": "later"},
    {"attention": "x"},
    {"source": "hearsay"},
    {"within_bytes": 1000},
]


@pytest.mark.parametrize("change", FAULTS)
def test_a_row_that_is_none(change: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same name twice."""
    monkeypatch.setattr(step_published, "TABLE", tmp_path / "table.csv")
    for rows in ((replace(ROW, **change),), (ROW, ROW)):
        texts = [",".join(ROW.to_row()), *(",".join(row.to_row().values()) for row in rows)]
        (tmp_path / "table.csv").write_text("\n".join(texts), encoding="utf-8")
        with pytest.raises(ValueError, match="expected"):
            published.__wrapped__()


def test_a_section_of_made_up_rows() -> None:
    rows = [
        ROW,
        replace(ROW, name="m b4, reserved", quantity="reserved", gpu="G"),
        replace(ROW, name="m b4", assumed="a loop", precision="tf32", cudnn=True),
    ]
    one = FootprintPrediction(
        name="", predicted_bytes=0, without_bytes=0, live_bytes=1, predicted_at="x", predicted_phase="loss"
    )
    found = {
        row.name: replace(one, name=row.name, predicted_bytes=1100 - 140 * place, without_bytes=1099 - 140 * place)
        for place, row in enumerate(rows)
    }
    text = section(rows, found).replace("1,000", "1000")
    whole, bare = "−18.00 %, −4.00 %, +10.00 %", "−18.10 %, −4.10 %, +9.90 %"
    assert f"| allocated (`max_memory_allocated`) | 2 | {whole} | 0 | {bare} | 0 |" in text
    same = "−4.00 %, −4.00 %, −4.00 % | 1 | −4.10 %, −4.10 %, −4.10 % | 1"
    assert f"| reserved (`max_memory_reserved`) | 1 | {same} |" in text
    assert "| m b4 | tf32 | sgd | – | allocated | 1000 B | 820 B | −18.00 % | −18.10 % | b |" in text
    assert "| +10.00 % |  | a |" in text
    assert "\n* a: <https://here> (G): nothing.\n* b: <https://here>: a loop.\n\n### Workspaces" in text
