"""A profiled step made by hand: a network of a convolution, a normalisation and a linear layer, and its sums.

Times are ms here. Peak 4e6 FLOP/s, memory 2e6 B/s, a call 0.1 ms. Least times (arithmetic, memory) of each operation:
convolution 2, 1; its normalisation 0.025, 1; linear 0.5, 0.5; loss 0.0025, 0.052; linear backward 1, 1; normalisation
backward 0.05, 1.5; convolution backward 4, 2; update 0.015, 0.45.
"""

from dataclasses import replace
from typing import Any

from results.records.answers import Machine, StepModule, StepOperation, StepProfile

MS = 1e-3

MACHINE = Machine(
    device="cpu", device_name="Made-up 9000", peak_by_unit={"fp32": 4e6}, bytes_per_s=2e6, launch_s=1e-4,
    sources={"fp32": "matmul, measured here", "bytes_per_s": "copy, measured here"},
)  # fmt: skip

MODULES = (
    StepModule(module="", type="Net", parameters=100),
    StepModule(module="body", type="Sequential", parameters=80),
    StepModule(module="body.0", type="Conv2d", settings="3, 8, kernel_size=(3, 3)", own_parameters=70, parameters=70),
    StepModule(module="body.1", type="BatchNorm2d", settings="8", own_parameters=10, parameters=10),
    StepModule(module="head", type="Linear", settings="in_features=8", own_parameters=20, parameters=20),
)

IMAGE, KERNEL, OUT = (2, 3, 8, 8), (8, 3, 3, 3), (2, 8, 8, 8)


def operation(index: int, name: str, module: str, phase: str, time_ms: float, **more: Any) -> StepOperation:
    """One operation of the made-up step; a unit where it has model FLOP."""
    values: dict[str, Any] = {
        "kind": "elementwise",
        "dtype": "float32",
        "kernels": 1.0,
        "waited_s": 0.0,
        "group": index,
    }
    values |= {"unit": "fp32"} if more.get("model_flop") else {}
    return StepOperation(
        index=index, name=f"aten.{name}", module=module, phase=phase, time_s=time_ms * MS, **{**values, **more}
    )


OPERATIONS = (
    operation(0, "convolution", "body.0", "forward", 4, kind="convolution", model_flop=8000, read_bytes=1000,
              written_bytes=1000, fused_bytes=2500, waited_s=1 * MS, input_shapes=(IMAGE, KERNEL)),
    operation(1, "native_batch_norm", "body.1", "forward", 3, kind="normalization", other_flop=100, read_bytes=1000,
              written_bytes=1000, group=0, input_shapes=(OUT,), output_shapes=(OUT,)),
    operation(2, "view", "", "forward", 0, kind="view", group=None, kernels=0.0),
    operation(3, "addmm", "head", "forward", 1, kind="matmul", model_flop=2000, read_bytes=500, written_bytes=500,
              fused_bytes=1000, input_shapes=((2, 8), (8, 10))),
    operation(4, "nll_loss_forward", "", "loss", 0.5, kind="loss", other_flop=10, read_bytes=100, written_bytes=4,
              fused_bytes=104),
    operation(5, "mm", "head", "backward", 2, kind="matmul", model_flop=4000, read_bytes=1000, written_bytes=1000,
              fused_bytes=1500, forward_index=3),
    operation(6, "native_batch_norm_backward", "body.1", "backward", 6, kind="normalization", other_flop=200,
              read_bytes=2000, written_bytes=1000, group=5, forward_index=1),
    operation(7, "convolution_backward", "body.0", "backward", 8, kind="convolution", model_flop=16000,
              read_bytes=2000, written_bytes=2000, fused_bytes=4000, waited_s=0.5 * MS, forward_index=0,
              input_shapes=(OUT, IMAGE, KERNEL)),
    operation(8, "_foreach_add_", "", "optimizer", 1.5, kind="optimizer", other_flop=60, read_bytes=600,
              written_bytes=300, fused_bytes=900),
)  # fmt: skip

ATTRIBUTED_MS = 26.0  # 4 + 3 + 0 + 1 + 0.5 + 2 + 6 + 8 + 1.5
BETWEEN_MS = 2.0
MODEL_FLOP = 30_000  # 8000 + 2000 + 4000 + 16000
UTILIZATION = 0.3  # 30000 / 4e6 = 7.5 ms of 25
UNFUSED_MS = 10.502  # 2 + 1 + 0.5 + 0.052 + 1 + 1.5 + 4 + 0.45
FUSED_MS = 8.002  # max(2, 1.25) + 0.5 + 0.052 + max(1, 0.75) + max(4, 2) + 0.45

PROFILE = StepProfile(
    model="net", batch_size=2, device="cpu", precision="fp32", mode="train", parameters=100, operations=OPERATIONS,
    modules=MODULES, step_times_s=(0.027, 0.029), unprofiled_times_s=(0.024, 0.026),
    between_s={"forward": 1 * MS, "backward": 0.5 * MS, "optimizer": 0.5 * MS}, machine=MACHINE,
    notes=("made up",),
)  # fmt: skip


def profile(**more: Any) -> StepProfile:
    """The made-up profile with other fields."""
    return replace(PROFILE, **more)


def untimed() -> StepProfile:
    """The same without a time or a machine: costs alone."""
    blank = {"time_s": None, "waited_s": None, "kernels": None}
    return profile(
        operations=tuple(replace(each, **blank) for each in OPERATIONS), step_times_s=(), unprofiled_times_s=(),
        between_s={}, machine=None,
    )  # fmt: skip


def step_of(*operations: StepOperation, **more: Any) -> StepProfile:
    """A step of 100 s of these operations alone."""
    values: dict[str, Any] = {
        "model": "m",
        "batch_size": 1,
        "device": "cuda",
        "precision": "amp-bf16",
        "mode": "train",
        "parameters": 0,
        "modules": (),
        "step_times_s": (100.0,),
    }
    return StepProfile(operations=operations, **{**values, **more})
