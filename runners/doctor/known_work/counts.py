"""Known FLOP and bytes of a training step: what is counted and predicted without a device, and what ran on it."""

from __future__ import annotations

from dataclasses import replace

from cleaning.facts.self_test import MEMORY_RATIO
from runners.doctor.known_work.answers import FAILED, REPORTED, Check, CheckResult, DeviceUnderTest, within

MODEL, IMAGE_SIZE, BATCH = "resnet18", 64, 2


def count(asked: DeviceUnderTest) -> CheckResult:
    """The exact count of a step, on fake tensors ÷ the FLOP of the calls whose kernels ran."""
    from analysis.operators.registry import model_flop
    from measure.profiler.work_profiles import profile_step
    from measure.timing.clocks import clock_for
    from runners.doctor.known_work.executed import executed_flop
    from runners.footprint.step import StepOptions, parts, trace_batch

    step = StepOptions(MODEL, "fp32", "sgd", _kind(asked), hyper={"image_size": IMAGE_SIZE})
    counted = sum(model_flop(operation) for operation in trace_batch(step, BATCH).operations)
    real = parts(step, BATCH, None, asked.device)
    recorded = profile_step(
        real.step, real.model, clock_for(asked.device), work="batch", cuda=asked.is_cuda, most_steps=1
    )
    executed, idle = executed_flop(recorded.operations, asked.is_cuda)
    why = f"{counted} FLOP counted, {executed} by the sizes of the calls that ran"
    idle_too = f"; of {idle} products no kernel was recorded" if idle else ""
    return within(counted / executed if executed else 0.0, 1, 1, "1, exactly", why + idle_too)


def memory(model: str, batch_size: int, image_size: int = 224) -> Check:
    """Bytes of tensors at the highest in a step, seen ÷ predicted; told and not judged where they differ, until a real
    GPU has confirmed the limit."""

    def check(asked: DeviceUnderTest) -> CheckResult:
        from runners.footprint import check_task
        from runners.footprint.step import StepOptions

        step = StepOptions(model, "fp32", "sgd", _kind(asked), hyper={"image_size": image_size})
        predicted, seen = check_task.check(step, batch_size, asked.device)
        ratio = seen / predicted
        words = f"1 within {MEMORY_RATIO:.0%}"
        text = f"{seen} bytes seen, {predicted} predicted"
        judged = within(ratio, 1 - MEMORY_RATIO, 1 + MEMORY_RATIO, words, text)
        return replace(judged, verdict=REPORTED) if judged.verdict == FAILED else judged

    return check


def _kind(asked: DeviceUnderTest) -> str:
    return "cuda" if asked.is_cuda else "cpu"
