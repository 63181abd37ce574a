"""Command, definition, injected fault: the self-test on a CPU, its exit codes, and checks that fail where they must."""

import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from analysis.devices import peaks
from cleaning.gates.evidence import SELF_TEST_FILE, parsed, self_test_faults
from results.errors import Unavailable
from results.records.cell import Telemetry
from runners import doctor as command
from runners import self_test
from runners import self_test as known_work
from runners.rebuild import self_test_of
from runners.self_test import CheckResult, DeviceUnderTest, check_range, rate_bounds
from tests.support.fakes.commands import refused, running

CPU = DeviceUnderTest("cpu", "a processor")


def absent(asked: DeviceUnderTest) -> CheckResult:
    raise Unavailable("no such thing here")


def broken(asked: DeviceUnderTest) -> CheckResult:
    raise RuntimeError("CUDA error: an illegal memory access\nwas encountered")


def good(asked: DeviceUnderTest) -> CheckResult:
    return check_range(1.0, 0.9, 1.1, "1 within 10%", "not said")


def test_the_document_has_every_check_and_the_verdict_follows(monkeypatch, capsys) -> None:
    monkeypatch.setattr(self_test, "CHECKS", {"good": good, "absent": absent})
    assert command.main(["--self-test", "--device", "cpu", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["verdict"], answer["stand_in"]) == ("ok", False)
    assert {"device", "facts", "environment", "driver", "torch_version", "harness_version", "tested_at"} <= set(answer)
    assert answer["checks"] == [
        {"check": "good", "verdict": "ok", "found": 1.0, "expected": "1 within 10%", "reason": ""},
        {"check": "absent", "verdict": "unavailable", "found": None, "expected": "", "reason": "no such thing here"},
    ]
    monkeypatch.setattr(self_test, "CHECKS", {"good": good, "broken": broken})
    assert command.main(["--self-test", "--device", "cpu"]) == 1
    assert "must not be believed" in capsys.readouterr().out


# ---- the file, the caller's mistakes, an interrupt ----


@pytest.mark.parametrize("name", ["tpu", "cuda", "cuda:x", "cuda:99", "cuda:", "CPU", "cpu:0", ""])
def test_a_device_that_is_not_there_is_the_callers_mistake(monkeypatch, capsys, name) -> None:
    monkeypatch.setattr(self_test, "self_test", lambda device, say: pytest.fail("it was measured"))
    words = f"expected auto or cpu, as torch sees no CUDA device, got {name!r}"
    refused(running(command.main, capsys)("--self-test", "--device", name), words)


def test_the_document_is_kept_with_a_run(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(self_test, "CHECKS", {"sleep": lambda asked: CheckResult("", "ok", 1.0, "1")})
    assert command.main(["--self-test", "--device", "cpu", "--format", "json", "--write", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    test = self_test_of(tmp_path)
    assert (test.device, test.checks) == (printed["device"], (CheckResult("sleep", "ok", 1.0, "1"),))
    assert self_test_of(tmp_path / "nowhere") is None
    (tmp_path / SELF_TEST_FILE).write_text('{"checks": ', encoding="utf-8")
    assert str(self_test_of(tmp_path)).startswith("cannot be read: ")


@pytest.mark.parametrize(
    "words",
    [
        ["--write", "."],
        ["--self-test", "--device", "cpu", "--write", "nowhere"],
        ["--save", "new.json"],
        ["--device", "tpu"],
        ["--peaks", "NVIDIA L40S", "--device", "cuda"],
        ["--self-test", "--peaks", "NVIDIA L40S"],
        ["--only", "sleep"],
        ["--budget", "10"],
    ],
)
def test_an_option_that_cannot_be_meant_so_is_the_callers_mistake(words: list[str], capsys) -> None:
    refused(running(command.main, capsys)(*words), f"{words[-2]}: expected")


def test_an_interrupt_is_one_line_and_leaves_what_was_checked(tmp_path) -> None:
    file = tmp_path / "self-test.json"
    words = [sys.executable, "-m", "runners.doctor", "--self-test", "--device", "cpu", "--save", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        while not running.stderr.readline().startswith("self-test: sleep"):
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=60)
    # Where the signal comes inside of an import's exec(), CPython ends itself by it: a shell shows 130 for both.
    assert running.returncode in (130, -signal.SIGINT)
    assert (out, err.splitlines()[-1]) == ("", "error: interrupted")
    document = json.loads(file.read_text())
    assert document["verdict"] == "unfinished"
    assert [each["check"] for each in document["checks"]][-1] == "events", "the one before sleep"
    assert "its verdict is 'unfinished'" in list(self_test_faults(parsed(json.loads(file.read_text()))))


# ---- known work ----


@pytest.mark.parametrize("name", ["sleep", "count", "flags", "ieee fp32"])
def test_known_work_comes_out_on_a_cpu(name: str) -> None:
    found = self_test.guarded(name, self_test.CHECKS[name], CPU)
    assert found.verdict == "ok", found


def test_predicted_memory_comes_out_on_a_cpu() -> None:
    assert known_work.memory("resnet18", 2, 64)(CPU).verdict == "ok"


@pytest.mark.parametrize("name", ["rate fp32", "convolution fp32", "events"])
def test_what_a_cpu_cannot_answer_is_unavailable_with_the_reason(name: str) -> None:
    found = self_test.guarded(name, self_test.CHECKS[name], CPU)
    assert (found.verdict, found.found) == ("unavailable", None)
    assert found.reason


class PlannedClock:
    """A clock whose device takes `device_s(block)` and whose wall shows `wall_s(block)` for block 0, 1, 2, …"""

    def __init__(self, wall_s, device_s=lambda block: None) -> None:
        self.plan, self.device_plan, self.now_s, self.block = wall_s, device_s, 0.0, -1

    def wall_s(self) -> float:
        return self.now_s

    def event(self) -> int:
        return self.block

    def between_s(self, start: int, end: int) -> float | None:
        return self.device_plan(self.block)

    def synchronize(self) -> None:
        self.block += 1
        self.now_s += self.plan(self.block)


def planned(monkeypatch, **plans):
    clock = PlannedClock(**plans)
    monkeypatch.setattr(self_test, "clock_for", lambda device: clock)
    monkeypatch.setattr(self_test, "long_product", lambda asked: (lambda: None, 40))
    return clock


GPU = DeviceUnderTest("cuda", "a GPU")


@pytest.mark.parametrize(("ratio", "verdict"), [(1.0, "ok"), (1.02, "ok"), (1.05, "failed"), (0.9, "failed")])
def test_events_are_held_against_the_wall(monkeypatch, ratio, verdict) -> None:
    planned(monkeypatch, wall_s=lambda block: 0.5, device_s=lambda block: 0.5 * ratio)
    found = self_test.events(GPU)
    assert (found.verdict, found.found) == (verdict, pytest.approx(ratio))


@pytest.mark.parametrize(
    ("slower", "covered"),
    [
        (1.0, 8),  # all blocks alike but for ±1 %, in turns
        (2.0, 0),  # 40 blocks, then 40 twice as long: the mean is 1.5 of the first, no interval reaches it
    ],
)
def test_intervals_of_a_device_that_slows_down_do_not_cover(monkeypatch, slower, covered) -> None:
    planned(monkeypatch, wall_s=lambda block: (slower if block >= 40 else 1) * (1.01 if block % 2 else 0.99))
    found = self_test.intervals(CPU)
    assert (found.found, found.verdict) == (covered, "ok" if covered else "failed")


@pytest.mark.parametrize(
    ("said", "covered"),
    [
        (True, 8),  # each block has as many cycles as the others
        (False, 0),  # the same seconds of a device that says no clock: 40 blocks at 1.8 GHz, 40 at 1.2
    ],
)
def test_a_clock_that_is_lowered_in_the_middle_is_no_fault(monkeypatch, said, covered) -> None:
    """Blocks of a second at 1.8 GHz, but for ±0.1 %; the clock moves by a step of 15 MHz in turns, and by many once."""
    hz = [(1_800_000_000, 1_785_000_000)[block % 2] if block < 40 else 1_200_000_000 for block in range(80)]
    jitter = (0.999, 1.001, 1.001, 0.999)
    seconds = [jitter[block % 4] * 1.8e9 / each for block, each in enumerate(hz)]
    clock = planned(monkeypatch, wall_s=seconds.__getitem__, device_s=seconds.__getitem__)

    class Clocked:
        def __enter__(self):
            return self

        def __exit__(self, *fault):
            return None

        def poll(self):
            return Telemetry(
                cell_id="", attempt=0, time_s=0.0, sm_clock_hz=hz[clock.block + 1] if said else None
            )  # while the block runs

    monkeypatch.setattr("runners.self_test.open_device", lambda device: Clocked())
    found = self_test.intervals(GPU)
    assert (found.found, found.verdict) == (covered, "ok" if covered else "failed")
    assert found.expected.endswith("at one clock") == said


def test_a_tensor_unit_must_do_more_than_the_vector_units() -> None:
    """H100: fp32 66.9, tf32 494.7, bf16 989.4 TFLOP/s. GeForce RTX 3090: tf32 no faster than fp32, so a fifth does."""
    h100, geforce = peaks.lookup("NVIDIA H100 80GB HBM3"), peaks.lookup("NVIDIA GeForce RTX 3090")
    assert rate_bounds(h100, "fp32") == pytest.approx((0.05 * 66.9e12, 1.02 * 66.9e12))
    assert rate_bounds(h100, "tf32") == pytest.approx((1.02 * 66.9e12, 1.02 * 494.7e12))
    assert rate_bounds(h100, "bf16")[0] == pytest.approx(1.02 * 66.9e12)
    assert rate_bounds(geforce, "tf32")[0] == pytest.approx(0.2 * geforce.peaks["tf32"])


def test_flags_that_a_variable_overrules_fail(monkeypatch) -> None:
    """oneDNN may round fp32 to bf16 on a CPU, and no flag of torch shows it."""
    monkeypatch.setenv("DNNL_DEFAULT_FPMATH_MODE", "bf16")
    found = self_test.CHECKS["flags"](CPU)
    assert found.verdict == "failed"
    assert "DNNL_DEFAULT_FPMATH_MODE" in found.reason


@pytest.mark.parametrize("lie", ["product", "convolution"])
def test_fp32_that_rounds_to_tf32_fails(monkeypatch, lie) -> None:
    """TF32 keeps 10 bits of a mantissa's 23."""

    def rounded(tensor):
        return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32) if tensor.dtype == torch.float32 else tensor

    product, convolve = torch.Tensor.__matmul__, torch.nn.functional.conv2d
    if lie == "product":
        monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: product(rounded(a), rounded(b)))
    else:
        monkeypatch.setattr(torch.nn.functional, "conv2d", lambda x, w: convolve(rounded(x), rounded(w)))
    found = self_test.CHECKS["ieee fp32"](CPU)
    assert found.verdict == "failed"
    assert 1e-4 < found.found < 1e-2


# ---- FLOP of what ran ----


def call(name, shapes, values=(), device_time_s=1e-6):
    from results.records.counts import ProfiledOperation

    return ProfiledOperation(
        work="batch", index=0, parent=None, name=name, phase="forward", module="", sequence_nr=None, forward_index=None,
        thread=1, input_shapes=shapes, input_dtypes=(), concrete_inputs=values, found_flop=None, start_s=0.0,
        time_s=0.0, device_time_s=device_time_s,
    )  # fmt: skip


def convolution(stride, padding, dilation):
    shapes = ((2, 6, 9, 9), (8, 3, 3, 3), *[()] * 7)
    return call("aten::convolution", shapes, ((), (), (), stride, padding, dilation, False, (0, 0), 2))


@pytest.mark.parametrize(
    ("recorded", "flop"),
    [
        (call("aten::mm", ((2, 3), (3, 5))), 2 * 2 * 3 * 5),
        (call("aten::addmm", ((5,), (2, 3), (3, 5))), 2 * 2 * 3 * 5),
        (call("aten::bmm", ((7, 2, 3), (7, 3, 5))), 7 * 2 * 2 * 3 * 5),
        (convolution((1, 1), (1, 1), (1, 1)), 2 * (2 * 8 * 9 * 9) * 3 * 9),  # outputs × channels of a group × 3 × 3
        (convolution((2, 2), (0, 0), (1, 1)), 2 * (2 * 8 * 4 * 4) * 3 * 9),  # (9 − 3) // 2 + 1 = 4
        (convolution((1, 1), (0, 0), (2, 2)), 2 * (2 * 8 * 5 * 5) * 3 * 9),  # a kernel of 5 with holes
    ],
)
def test_flop_of_recorded_calls_by_hand(recorded, flop) -> None:
    assert known_work.executed_flop([recorded, call("aten::relu", ((9, 9),))], cuda=True) == (flop, 0)


def test_a_call_without_a_kernel_has_not_run() -> None:
    ran = call("aten::mm", ((2, 3), (3, 5)))
    idle = replace(call("aten::mm", ((9, 9), (9, 9)), device_time_s=0.0), index=1)
    assert known_work.executed_flop([ran, idle], cuda=True) == (60, 1)
    with pytest.raises(Unavailable, match="no kernel"):
        known_work.executed_flop([replace(ran, device_time_s=None)], cuda=True)
    assert known_work.executed_flop([replace(ran, device_time_s=None)], cuda=False) == (60, 0)
    with pytest.raises(Unavailable, match="no product"):
        known_work.executed_flop([call("aten::relu", ((9,),))], cuda=True)


def test_the_best_block_counts_on_a_host_that_stumbles(monkeypatch) -> None:
    planned(monkeypatch, wall_s=lambda block: 0.7 if block < 9 else 0.5, device_s=lambda block: 0.5)
    assert self_test.events(GPU).verdict == "ok"


def test_sleeps_that_are_not_proportional_fail(monkeypatch) -> None:
    """First a short one, then five of 40 and five of 80 units; an offset of 5 ms makes 45 and 85 of 40 and 80 ms."""
    for offset_s, verdict in ((0.0, "ok"), (0.005, "failed")):
        planned(monkeypatch, wall_s=lambda block, off=offset_s: off + (0.01, *[0.04] * 5, *[0.08] * 5)[block])
        monkeypatch.setattr(self_test.time, "sleep", lambda seconds: None)
        found = self_test.sleep(CPU)
        assert (found.verdict, found.found) == (verdict, pytest.approx((0.08 + offset_s) / (0.04 + offset_s)))


def test_the_file_is_the_document_and_is_never_overwritten(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setattr(self_test, "CHECKS", {"good": good, "broken": broken})
    file = tmp_path / "new" / "self-test.json"
    words = ["--self-test", "--device", "cpu", "--format", "json", "--save", str(file)]
    assert command.main(words) == 1
    assert json.loads(file.read_text()) == json.loads(capsys.readouterr().out)
    before = file.read_bytes()
    refused(running(command.main, capsys)(*words), "which exists")
    assert file.read_bytes() == before
