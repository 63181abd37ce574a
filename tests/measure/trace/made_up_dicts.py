"""Lines of PyProf's parse step, as it writes them."""

from collections.abc import Mapping, Sequence
from typing import Any

FUNCTIONAL = "torch.nn.functional"


def marker(op: str, *arguments: Mapping[str, Any]) -> str:
    return str({"mod": FUNCTIONAL, "op": op, "args": list(arguments)})


def tensor(*sizes: int) -> dict[str, Any]:
    return {"name": "", "type": "tensor", "shape": sizes, "dtype": "float32"}


def line(kernel: str, seq: Sequence[int], direction: str, mark: str = "", op: str = "", **more: Any) -> str:
    """One line of PyProf's parse step."""
    found = {
        "kShortName": kernel,
        "kLongName": f"void {kernel}<float>(float*)",
        "kDuration": 500,
        "layer": [],
        "marker": [mark] if mark else [],
        "seqId": list(seq),
        "altSeqId": [],
        "subSeqId": 0,
        "dir": direction,
        "mod": [FUNCTIONAL] if mark else ["na"],
        "op": ["conv2d"] if mark else [op],
        "tid": 12 if direction == "bprop" else 11,
        "device": 0,
        "stream": 7,
        "grid": (1, 2, 3),
        "block": (4, 5, 6),
    }
    return str({**found, **more}) + "\n"


STRIDED = {"name": "stride", "type": "int", "value": 2}

FIRST = marker("conv2d", tensor(2, 3, 8, 8), tensor(4, 3, 3, 3))

SECOND = marker("conv2d", tensor(2, 4, 6, 6), tensor(5, 4, 2, 2), STRIDED)

DICT_LINES = (
    line("conv_a", [1], "fprop", FIRST)
    + line("conv_b", [2], "fprop", SECOND)
    + line("dgrad", [2], "bprop", op="CudnnConvolution")
    + line("wgrad", [2], "bprop", op="CudnnConvolution", subSeqId=1)
    + line("wgrad", [1], "bprop", op="CudnnConvolution")
)
