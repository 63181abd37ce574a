"""`python -m runners.project`: its modes, formats and figures, files of one's own, each mistake in one line."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from analysis.project import domain as domains
from analysis.project.domain import Formulas, shipped_formulas
from reports.project import figures as project_figures
from runners.project import command, model

ROOT = Path(__file__).parents[3]

TEN_LINES = """
model = "resnet18"
grows = "width"
sub_batch = 64
sizes = { image = 64, classes = 10 }
learning_curve = { alpha = 15.0, beta_g = [-0.3, -0.32, -0.28] }
model_size = { sigma = 20000.0, beta_p = 0.57 }
error = { target = 0.2, unit = "wrong" }
data = { unit = "image" }
"""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert command.main(arguments) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        command.main(arguments)
    assert caught.value.code == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def test_a_domain_is_projected_as_table_csv_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "word_lm")
    assert text.startswith("word language model: wordlm, hidden 38,427, sub-batch 128\n")
    assert max(map(len, text.splitlines())) <= 100
    document = json.loads(told(capsys, "word_lm", "--format", "json"))
    rows = {row["quantity"]: row for row in csv.DictReader(io.StringIO(told(capsys, "word_lm", "--format", "csv")))}
    assert set(rows) == set(document["projection"]) - {"bound"}
    assert float(rows["epoch_s"]["value"]) == document["projection"]["epoch_s"]["value"]
    assert document["projection"]["grown"]["value"] == document["sizes"]["hidden"] == 38427
    assert document["accelerators_for_memory"] == 7, "202 GB of footprint, 32 GB each"
    assert document["laws"]["limits"]["gamma"] == pytest.approx(480.65, rel=1e-5)


def test_the_target_the_batch_and_the_accelerator_are_the_callers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("word_lm", "--target", "3", "--sub-batch", "64", "--format", "json")
    near = json.loads(told(capsys, *words))
    assert near["sub_batch"] == 64
    assert near["projection"]["data_scale"]["value"] == pytest.approx((3 / 3.37) ** (1 / -0.066))
    device = json.loads(told(capsys, *words, "--device", "NVIDIA A100-SXM4-80GB", "--dtype", "bf16"))
    assert device["target"]["peak_flop_per_s"] == 312e12
    assert device["projection"]["moved_bytes"]["value"] == near["projection"]["moved_bytes"]["value"] / 2
    assert device["target"]["memory_bytes"] == 80e9, "of the table of memories"
    assert device["accelerators_for_memory"] == -(-device["projection"]["footprint_bytes"]["value"] // 80e9)
    own = ("--peak-tflops", "100", "--bandwidth-gbs", "1e9", "--memory-gib", "1e6", "--compute-ratio", "0.5")
    mine = json.loads(told(capsys, *words, *own))
    assert mine["projection"]["step_s"]["value"] == pytest.approx(near["projection"]["flop"]["value"] / 50e12)
    assert mine["target"]["memory_bytes"] == 1e6 * 2**30
    assert mine["accelerators_for_memory"] == 1


def test_a_known_devices_memory_says_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --memory-gib it is said, as of the paper's target; with it, refused."""
    small, large = (
        " ".join(told(capsys, "image", "--device", name).split())
        for name in ("Tesla P100-PCIE-16GB", "NVIDIA A100-SXM4-80GB")
    )
    assert "has 16 GB: it does not hold the sub-batch of 32, at most one of " in small
    assert "has 80 GB: it holds a sub-batch of up to " in large
    assert "not hold the sub-batch of 128, nor one of 1; the footprint is" in " ".join(told(capsys, "word_lm").split())


def test_the_rules_are_the_callers(capsys: pytest.CaptureFixture[str]) -> None:
    theirs, ours = (json.loads(told(capsys, "word_lm", "--rules", r, "--format", "json")) for r in model.RULES)
    assert (theirs["rules"], ours["rules"]) == model.RULES
    many, few = theirs["projection"]["moved_bytes"]["value"], ours["projection"]["moved_bytes"]["at_least"]
    assert many > 10 * few, "a while loop adds up gradients at every step, and PyTorch has one product"


def test_bytes_without_what_onednns_lstm_keeps_are_at_least(capsys: pytest.CaptureFixture[str]) -> None:
    """Its workspace has no known size: no total of bytes, and nothing that is divided by one."""
    words = ("word_lm", "--rules", "flopledger")
    projection = json.loads(told(capsys, *words, "--format", "json"))["projection"]
    hanging = {name: each for name, each in projection.items() if name != "bound" and each["value"] is None}
    assert set(hanging) == {"moved_bytes", "intensity", "footprint_bytes", "step_s", "utilization_ratio", "epoch_s"}
    assert hanging["intensity"]["at_most"] > 0
    text = told(capsys, *words)
    assert "bytes of a step, at least" in text
    assert "utilization by the roofline, at most" in text
    assert "at_least_moved_bytes," in told(capsys, *words, "--format", "csv")
    assert "at least" not in told(capsys, "char_lm", "--rules", "flopledger").partition("first-order")[0]


def test_a_file_of_ten_lines_is_projected_without_shipped_formulas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model once from its own operation tables and once from the shipped rows: as many parameters."""
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    assert len(TEN_LINES.strip().splitlines()) <= 10
    with_rows = json.loads(told(capsys, str(file), "--format", "json"))
    assert with_rows["rules"] == "catamount"
    assert "no confidence interval" in " ".join(told(capsys, str(file)).split())
    monkeypatch.setattr("analysis.project.domain.shipped_formulas", lambda _rules: {})
    derived = json.loads(told(capsys, str(file), "--format", "json"))
    assert derived["rules"] == "flopledger"
    ours, theirs = (each["projection"] for each in (derived, with_rows))
    assert ours["grown"]["value"] == theirs["grown"]["value"]
    assert ours["parameters"] == theirs["parameters"]
    assert ours["flop"]["value"] == pytest.approx(theirs["flop"]["value"], rel=0.05)
    for name in ("data", "parameters", "epoch_s"):
        assert ours[name]["low"] < ours[name]["value"] < ours[name]["high"]
    assert ours["data"]["low"] == pytest.approx((0.2 / 15) ** (1 / -0.32))
    assert ours["data_scale"] == {"value": None, "low": None, "high": None, "unit": ""}


def test_a_paper_is_reproduced_in_three_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(told(capsys, "--reproduce", "ppopp2019", "--format", "json"))
    keys = {"table", "row", "column", "paper", "ours", "deviation_ratio", "verdict", "assumption"}
    assert all(keys <= set(cell) for cell in document["cells"])
    assert sum(document["verdicts"].values()) == len(document["cells"])
    rows = list(csv.DictReader(io.StringIO(told(capsys, "--reproduce=ppopp2019", "--format", "csv"))))
    assert [row["verdict"] for row in rows] == [cell["verdict"] for cell in document["cells"]]
    empty = next(cell for cell in document["cells"] if cell["table"] == "Figure 8")
    assert (empty["paper"], empty["ours"], empty["deviation_ratio"]) == (None, None, None)
    assert "Table 5" in told(capsys, "--reproduce", "ppopp2019")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "expected a domain (word_lm, char_lm, nmt, speech, image) or a .toml file, got none"),
        (("word_lmm",), "unknown domain: expected word_lm,"),
        (("nowhere.toml",), "nowhere.toml could not be read"),
        (("word_lm", "--target", "0"), "expected a number above 0, got 0"),
        (("word_lm", "--device", "H9000"), "expected a device of the table of peaks"),
        (("word_lm", "--device", "Tesla K80", "--dtype", "bf16"), "expected fp64 or fp32, got 'bf16'"),
        (("word_lm", "--dtype", "bf16"), "expected --device or --peak-tflops"),
        (("word_lm", "--peak-tflops", "3"), "expected both --peak-tflops and --bandwidth-gbs"),
        (("word_lm", "--compute-ratio", "0"), "expected a share above 0"),
        (("word_lm", "--memory-gib", "32"), "none, as not even one sample fits"),
        (("image", "--memory-gib", "24"), "(up to 26), got 32"),
        (("--reproduce", "ppop"), "expected ppopp2019, got 'ppop', nearest ppopp2019"),
        (("word_lm", "--fromat", "csv"), "unknown argument"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[-0.3, -0.32, -0.28]", "-0.6", "mine.toml: beta_g: expected -0.5 to below 0, got -0.6"),
        ("0.57", "1.0", "mine.toml: beta_p: expected 0.5 to below 1, got 1"),
        ("[-0.3, -0.32, -0.28]", "-0.3, floor = 0.2", "mine.toml: error.target: expected more than 0.2"),
        ("resnet18", "resnet1888", "unknown model 'resnet1888'"),
        ('"width"', '"widht"', "nearest width"),
        ("sub_batch = 64", "sub_batch =", "expected TOML"),
        ("20000.0", "1e-9", "expected"),
    ],
)
def test_a_file_with_a_mistake_is_one_line(
    old: str, new: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.toml"
    assert old in TEN_LINES
    file.write_text(TEN_LINES.replace(old, new))
    assert words in refused(capsys, str(file))


@pytest.mark.parametrize("model", ["{folder}/evil.py:build", "evil:build"])
def test_code_that_a_file_names_runs_only_if_it_is_allowed(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_name('ran').touch()\ndef build(): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = model.format(folder=tmp_path)
    lines = TEN_LINES.splitlines()
    lines = [f'model = "{name}"' if line.startswith("model =") else line for line in lines]
    (tmp_path / "mine.toml").write_text("\n".join(lines))
    line = refused(capsys, str(tmp_path / "mine.toml"))
    assert f"mine.toml names code, which would run as you: {name}; read it, then add --allow-code" in line
    assert not (tmp_path / "ran").exists()
    assert "takes no image_size" in refused(capsys, str(tmp_path / "mine.toml"), "--allow-code")
    assert (tmp_path / "ran").exists()


def test_two_questions_at_once_are_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "MODES", {"--one": ("a:b", "?"), "--two": ("c:d", "?")})
    assert command.main(["--one", "--two=3"]) == 2
    assert capsys.readouterr().err == "error: expected one of --one, --two, got --one and --two\n"


def test_a_model_without_formulas_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from runners.formula.points import NotBuilt

    def fail(_options: Any) -> None:
        raise NotBuilt("it cannot be built")

    monkeypatch.setattr("runners.formula.command.answer", fail)
    monkeypatch.setattr("analysis.project.domain.shipped_formulas", lambda _rules: {})
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    assert command.main([str(file)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: it cannot be built"


def test_a_model_of_which_a_part_is_counted_is_not_projected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = SimpleNamespace(
        not_understood={"their.product": 2}, totals={"model_flop": None, "all_flop": None}, point={}
    )
    monkeypatch.setattr("runners.formula.command.answer", lambda _options: found)
    monkeypatch.setattr("analysis.project.domain.shipped_formulas", lambda _rules: {})
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    assert command.main([str(file)]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines()[-1].endswith("no rule counts their.product: a part of its FLOP is no projection")


def test_products_that_stand_for_all_arithmetic_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the model's own formulas that of all FLOP is taken away: nobody knows the other arithmetic."""
    from runners.formula import command as formula_command

    monkeypatch.setattr("analysis.project.domain.shipped_formulas", lambda _rules: {})
    file = tmp_path / "mine.toml"
    file.write_text(TEN_LINES)
    words = "FLOP are those of products alone"
    whole = " ".join(told(capsys, str(file)).split())
    answer = formula_command.answer

    def without(options: Any) -> Any:
        found = answer(options)
        return replace(found, totals={**found.totals, "all_flop": None})

    monkeypatch.setattr("runners.formula.command.answer", without)
    part = " ".join(told(capsys, str(file)).split())
    assert (words in whole, words in part) == (False, True)


def test_a_projection_needs_no_torch() -> None:
    code = "import sys\nfrom runners.project import command\ncommand.main(['image'])\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, check=True)


def test_figures_are_drawn_for_a_domain_and_for_the_paper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Drawn without rendering: what each panel has."""
    from analysis.project import ppopp2019

    target = ppopp2019.target_of(ppopp2019.inputs("ppopp2019"))
    found: list[tuple[Any, Formulas]] = [
        (domain, shipped_formulas()[domain.model]) for domain in map(domains.shipped, domains.shipped_names())
    ]
    curves = project_figures.learning_curves([domain for domain, _ in found], sketch=True)
    assert [axes.get_title("left") or axes.get_title() for axes in curves.axes][1:] == [d.name for d, _ in found]
    regions = [text.get_text() for text in curves.axes[0].texts]
    assert regions == ["small\ndata", "power law", "irreducible"]
    growth = project_figures.growth(found, target)
    for axes in growth.axes[:4]:
        stars = [line for line in axes.lines if line.get_marker() == "*" and len(line.get_xdata())]
        assert len(stars) == len(found)
    (end,) = growth.axes[0].lines[2].get_ydata()
    assert end == pytest.approx(480.65 * 24.4e9, rel=0.02), "gamma · p of the word model at its target"
    roof = project_figures.roofline(found, target)
    points = {line.get_label(): line for line in roof.axes[0].lines}
    (rate,) = points["image classification"].get_ydata()
    assert rate == pytest.approx(0.8 * 15.67e12)
    batches = project_figures.sub_batch(*found[0], target, word_lm=True)
    assert [text.get_text() for text in batches.axes[0].texts][1:] == [
        "ridge: 81",
        "95 % of the limit: 164,476",
        "chosen: 128",
    ]
    days = project_figures.data_parallel(target).axes[0].lines[0]
    at = dict(zip(days.get_xdata(), days.get_ydata(), strict=True))
    assert (at[1024], at[512]) == pytest.approx((6.21, 11.16), rel=2e-3)


def test_figures_land_in_their_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reports.shared.figure_style.render", lambda _figure: {"png": b"p", "svg": b"s"})
    told(capsys, "image", "--figures", str(tmp_path / "drawn"))
    names = {path.name for path in (tmp_path / "drawn").iterdir()}
    assert names == {f"{n}.{e}" for n in ("learning_curve", "growth", "sub_batch", "roofline") for e in ("png", "svg")}
