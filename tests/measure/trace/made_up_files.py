"""Small recordings in the files of each recorder."""

import json
from pathlib import Path
from typing import Any

from tests.support.made_up_operations.nsys_export import ENGINE, Export


def event(cat: str, name: str, ts: float, dur: float, tid: Any = 1, pid: Any = 1, **args: Any) -> dict[str, Any]:
    """One complete event."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def cuda_trace() -> list[dict[str, Any]]:
    """A call, its launch, a kernel, a copy and a fill."""
    return [
        event("cpu_op", "aten::mm", 10, 20, **{"External id": 5, "Input Dims": [[2, 3], [3, 4]]}),
        event("cuda_runtime", "cudaLaunchKernel", 12.5, 2, correlation=100),
        event("cuda_driver", "cuLaunchKernelEx", 13, 1, correlation=100),
        event("cuda_runtime", "cudaMemcpyAsync", 16, 1, correlation=101),
        event("cuda_runtime", "cudaDeviceSynchronize", 18, 1, correlation=102),
        event("kernel", "gemm", 40.25, 3.125, "stream 7", 0, device=0, stream=7, correlation=100, grid=[1, 2, 3]),
        event("gpu_memcpy", "Memcpy HtoD", 50, 1, "stream 7", 0, device=0, stream=7, correlation=101),
        event("gpu_memset", "Memset (Device)", 60, 1, "stream 7", 0, device=0, stream=7, correlation=999),
        event("gpu_user_annotation", "step", 0, 100, "stream 7", 0),
        event("python_function", "train.py(1): main", 0, 100),
        event("python_function", "nn.Module: Linear_0", 9, 30),
    ]


def write(path: Path, trace: Any) -> Path:
    path.write_text(json.dumps(trace))
    return path


SIZES = "[[8, 3, 9, 9], [4, 3, 3, 3], [], [], [], [], []]"


def step(year: int = 2026) -> Export:
    """A convolution forward and backward: two calls, two launches, two kernels."""
    made = Export(year)
    made.push("ProfilerStep#2", 0, 1000)
    made.push(f"aten::conv2d, seq = 5, op_id = 9, sizes = {SIZES}", 100, 200)
    made.push(f"aten::cudnn_convolution, seq = 5, op_id = 10, sizes = {SIZES}", 110, 190)
    made.launch(1, 120, 130)
    made.kernel("void conv<float>(float*)", 1, 300, 350)
    made.push("autograd::engine::evaluate_function: ConvolutionBackward0, op_id = 11", 500, 600, ENGINE)
    made.push("ConvolutionBackward0, seq = 5, op_id = 12", 510, 590, ENGINE)
    made.push("aten::convolution_backward, op_id = 13, sizes = [[8, 4, 7, 7], [8, 3, 9, 9]]", 520, 580, ENGINE)
    made.launch(2, 530, 540, ENGINE)
    made.kernel("wgrad", 2, 700, 800)
    made.add("TARGET_INFO_GPU", id=3, cuDevice=0, name="NVIDIA H200", smCount=132)
    return made
