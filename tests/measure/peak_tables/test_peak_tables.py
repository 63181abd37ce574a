"""Other packages' tables are asked through their own functions, and what goes wrong in one is a row."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path

import pytest

from measure.peak_tables import asking
from measure.peak_tables.asking import ask
from measure.peak_tables.definitions import definitions
from measure.peak_tables.questions import QUESTIONS, AskedDevice, answer
from measure.peak_tables.sources import ABSENT, TABLES
from results import Unavailable

H100 = AskedDevice("NVIDIA H100 80GB HBM3", "9.0", 132, 1.98e9)
T4 = AskedDevice("Tesla T4", "7.5", 40, 1.59e9)

# Small packages of our own, in the shape that each question takes: file of the table → its text.
TRL = """
import a_package_that_is_not_there
_PEAK_FLOPS_BY_DEVICE = (("H100", {"bfloat16": 989e12}),)
def get_peak_flops(device_name, dtype):
    if "T4" in device_name:
        raise KeyError("T4")
    found = [flops for name, flops in _PEAK_FLOPS_BY_DEVICE if re.search(name, device_name)]
    return found[0].get(dtype) if found else None
"""


def wheel(folder: Path, package: str, text: str, version: str = "1.2") -> Path:
    table = TABLES[package]
    path = folder / f"{table.distribution.replace('-', '_')}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(table.file, text)
    return path


def test_a_package_is_asked_and_a_fault_in_one_device_costs_its_rows_alone(tmp_path):
    wheel(tmp_path, "TRL", TRL)
    rows = ask("TRL", [H100, T4, AskedDevice("none")], tmp_path)
    assert {row.version for row in rows} == {"1.2"}
    assert [(row.device_name, row.dtype, row.said_flop_per_s, row.reason) for row in rows] == [
        ("NVIDIA H100 80GB HBM3", "bf16", 989e12, ""),
        ("NVIDIA H100 80GB HBM3", "fp16", None, ""),
        ("Tesla T4", "bf16", None, "KeyError: 'T4'"),
        ("Tesla T4", "fp16", None, "KeyError: 'T4'"),
        ("none", "bf16", None, ""),
        ("none", "fp16", None, ""),
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("open('here', 'w')", "PermissionError: open is not allowed"),
        ("__import__('socket').create_connection(('127.0.0.1', 9))", "PermissionError: socket.connect is not allowed"),
        ("__import__('os').system('true')", "PermissionError: os.system is not allowed"),
    ],
)
def test_a_table_reaches_nothing(tmp_path, body, words):
    wheel(tmp_path, "TRL", f"_PEAK_FLOPS_BY_DEVICE = ()\ndef get_peak_flops(device_name, dtype):\n    {body}\n")
    assert {row.reason.partition(" to a table")[0] for row in ask("TRL", [H100], tmp_path)} == {words}


def test_a_table_that_never_answers_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(asking, "LIMIT_S", 2.0)
    wheel(tmp_path, "TRL", "_PEAK_FLOPS_BY_DEVICE = ()\ndef get_peak_flops(a, b):\n    while True: pass\n")
    (row,) = ask("TRL", [H100], tmp_path)
    assert (row.device_name, row.reason) == (None, "no answer in 2 s")


def test_what_is_absent_is_a_row_with_the_reason(tmp_path):
    (row,) = ask("nanoGPT", [H100], tmp_path)
    assert "expected a checkout with a VERSION file" in row.reason
    (row,) = ask("verl", [H100], tmp_path)
    assert row.reason == "verl is neither installed nor in the folder of packages"
    wheel(tmp_path, "TRL", "x = 1")
    (row,) = ask("TRL", [H100], tmp_path)
    assert row.reason == "the file defines no _PEAK_FLOPS_BY_DEVICE, get_peak_flops"
    with zipfile.ZipFile(tmp_path / "veomni-9-py3-none-any.whl", "w") as file:
        file.writestr("veomni/__init__.py", "")
    (row,) = ask("VeOmni", [H100], tmp_path)
    assert row.reason == "veomni-9-py3-none-any.whl has no veomni/utils/count_flops.py"
    (row,) = ask("zeus", [H100], tmp_path)
    assert row.reason == ABSENT["zeus"]
    with pytest.raises(ValueError, match="got 'zeos'"):
        ask("zeos", [H100], tmp_path)


def test_only_the_named_definitions_run():
    text = "a = 1\nb = a + 1\nraise SystemExit\ndef f(x: NoSuchName) -> AlsoNone:\n    return b * x\n"
    assert definitions(text, ("a", "b", "f"), {})["f"](3) == 6
    with pytest.raises(Unavailable, match="the file defines no g"):
        definitions(text, ("g",), {})


def test_rates_are_asked_with_the_devices_units_and_clock():
    """Installed torch: 132 multiprocessors × 2048 multiply-adds × 2 × 1.98 GHz."""
    rows = {row.dtype: row for row in ask("torch GPULimits", [H100], Path("none"))}
    assert rows["bf16"].said_flop_per_s == pytest.approx(132 * 2048 * 2 * 1.98e9)
    assert rows["tf32"].said_flop_per_s == pytest.approx(132 * 1024 * 2 * 1.98e9)


def test_a_device_without_units_is_no_question_to_a_rate():
    (row, *_) = ask("torch GPULimits", [AskedDevice("TPU v4")], Path("none"))
    assert row.reason == "it asks for a compute capability, which this device has none of"


# Each question against a text in its package's shape; (device, format) → TFLOP/s.
SHAPES = {
    "torchtitan": ('def get_peak_flops(d):\n    subprocess.run(["lspci"]) if 0 else None\n    return 312e12', 312),
    "composer": (
        "_HSERIES_SXM = {'amp_bf16': 2}\nGPU_AVAILABLE_FLOPS = {'x': _HSERIES_SXM}\n"
        "def get_gpu_flops_available(state):\n"
        "    return 5e12 if torch.cuda.is_available() and state.precision.value == 'amp_bf16' else 0",
        5,
    ),
    "verl": ('_DEVICE_FLOPS = {"H100": 989}\ndef get_device_flops(unit, device_name):\n    return 989', 989),
    "VeOmni": ("def get_device_flops(unit):\n    return float('inf') if 'H100' in get_device_name() else 1", None),
    "OLMo-core": ("def get_device_peak_flops_per_second(name, *, using_half_precision):\n    return 7e12", 7),
    "nanoGPT": ("class GPT:\n    def estimate_mfu(self):\n        flops_promised = 312e12\n", 312),
    "ms-swift": (
        "device_flops_map = {'H100': 3e12}\nclass PerfMetricsLogCallback(TrainerCallback):\n    @staticmethod\n"
        "    def _retrieve_flops_from_map(device):\n"
        "        return next((v for k, v in device_flops_map.items() if k in device.get_device_name()), None)",
        3,
    ),
    "llm.c": (
        "static const PerfData HOPPER = {378.f, 756.f, 756.f, 756.f, 1513.f, 1513.f, 1620.f, 456.f};\n"
        '{"NVIDIA H100 80GB HBM3", &HOPPER, 528, 1830},',
        756 * 528 / 456 * 1830 / 1620,
    ),
}


@pytest.mark.parametrize(("package", "shape"), SHAPES.items())
def test_each_question_takes_its_packages_shape(package, shape):
    text, tera = shape
    found = answer(package, text, H100, "bf16")
    assert found == (None if tera is None else pytest.approx(tera * 1e12))


def test_every_table_has_a_question():
    assert {table.question for table in TABLES.values()} == QUESTIONS.keys()
    assert len(TABLES) >= 10
    assert not TABLES.keys() & ABSENT.keys()
    assert all(dataclasses.asdict(table)["dtypes"] for table in TABLES.values())
