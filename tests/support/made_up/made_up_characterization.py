"""Recordings whose every number is chosen: two workloads of few operations, with shares that a person can add up."""

from collections.abc import Mapping, Sequence

from results.records.characterization import (
    PLAIN,
    PROFILED,
    WARM_UP,
    Characterization,
    OperationTime,
    OperationTypeCost,
    RecordedStep,
    WorkloadRecording,
)

Call = tuple[str, str, str]
"""Name, phase, scope."""

NET: Mapping[Call, float] = {
    ("aten::mkldnn_convolution", "forward", ""): 2.0,
    ("aten::convolution_backward", "backward", ""): 4.0,
    ("aten::addmm", "forward", ""): 1.0,
    ("aten::mm", "backward", ""): 1.0,
    ("aten::relu", "forward", ""): 0.5,
    ("aten::mul_", "optimizer", "step"): 0.5,
}
"""Of a step of 10: D 6, B 2, A 0.5, F 0.5, and 1 between."""

TALK: Mapping[Call, float] = {
    ("aten::addmm", "forward", ""): 3.0,
    ("aten::mm", "backward", ""): 3.0,
    ("aten::embedding", "forward", ""): 1.0,
    ("mylib::spin", "forward", ""): 2.0,
}
"""Of a step of 10: B 6, G 1, 2 of nobody's, and 1 between."""


def recording(number: int, workload: str, **ways: object) -> WorkloadRecording:
    return WorkloadRecording(recording=number, workload=workload, threads=1, **ways)  # type: ignore[arg-type]


def rows(
    which: WorkloadRecording,
    calls: Mapping[Call, float],
    steps: int = 12,
    scale: Sequence[float] | None = None,
    between: float = 1.0,
) -> Characterization:
    """A recording of steps whose operations take these times in ms; scale: of each step, 1 by default."""
    factors = list(scale or [1.0] * steps)
    number = which.recording
    total = sum(calls.values()) + between
    plain = [
        RecordedStep(recording=number, part=PLAIN, step=place, time_s=factor * total / 1e3)
        for place, factor in enumerate(factors)
    ]
    profiled = [
        RecordedStep(
            recording=number,
            part=PROFILED,
            step=place,
            time_s=factor * total / 1e3,
            operations_s=factor * sum(calls.values()) / 1e3,
            calls=len(calls),
            launches=len(calls),
        )
        for place, factor in enumerate(factors)
    ]
    times = [
        OperationTime(
            recording=number,
            step=place,
            name=name,
            phase=phase,
            scope=scope,
            optimizer="Adam" if scope else "",
            calls=1,
            launches=1,
            time_s=factor * time_ms / 1e3,
        )
        for place, factor in enumerate(factors)
        for (name, phase, scope), time_ms in calls.items()
    ]
    warm = RecordedStep(recording=number, part=WARM_UP, step=0, time_s=3 * total / 1e3)
    return Characterization((which,), (warm, *plain, *profiled), tuple(times))


def costs(number: int) -> tuple[OperationTypeCost, ...]:
    """A convolution of 100 FLOP and 50 bytes in 2 s, and an optimizer's product of 10 FLOP and 20 bytes in 1 s."""
    return (
        OperationTypeCost(
            recording=number, name="aten.convolution", kind="convolution", phase="forward", module="conv", calls=1,
            model_flop=100, read_bytes=50, time_s=2,
        ),
        OperationTypeCost(
            recording=number, name="aten.mul", kind="elementwise", phase="optimizer", calls=2, other_flop=10,
            read_bytes=10, written_bytes=10, time_s=1,
        ),
    )  # fmt: skip


def together() -> Characterization:
    """Both workloads in training, NET in inference (its forward calls alone) and at two threads (half the time but for
    what lies between), and a workload that failed."""
    forward = {call: time for call, time in NET.items() if call[1] == "forward"}
    halved = {call: time / 2 for call, time in NET.items()}
    parts = [
        rows(recording(0, "net", parameters=7), NET),
        rows(recording(1, "net", mode="inference"), forward),
        rows(WorkloadRecording(recording=2, workload="net", threads=2, why="threads"), halved),
        rows(recording(3, "talk", variant="as_coded"), TALK),
        Characterization(recordings=(recording(4, "lost", status="crashed", reason="it fell over"),)),
    ]
    found = Characterization(costs=costs(0))
    for part in parts:
        found = found.with_rows(part)
    return found
