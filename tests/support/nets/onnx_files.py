"""Small ONNX files and the PyTorch modules that they are the graphs of, with the same weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional


def write(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, Sequence[Any]]],
    outputs: Sequence[str],
    weights: dict[str, torch.Tensor | np.ndarray[Any, Any]],
    opset: int = 18,
) -> str:
    """inputs: (name, type, sizes with names for dynamic ones). Gives the path as text."""
    arrays = {name: w.detach().numpy() if isinstance(w, torch.Tensor) else w for name, w in weights.items()}
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, kind, sizes) for name, kind, sizes in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, str(path))
    return str(path)


class Convolutions(nn.Module):
    """Convolutions with a shortcut, as in a residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.norm(self.first(x))), 2)
        x = functional.relu(self.second(x) + x)
        return self.head(x.mean((2, 3)))


def convolutions(path: Path, net: Convolutions) -> str:
    """The graph, with the batch free and images of 32 × 32."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "/first/Conv", strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("BatchNormalization", ["a", "g", "b", "m", "v"], ["n"], "/norm/BatchNormalization"),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", ["p", "w2", "b2"], ["c"], "/second/Conv", pads=[1, 1, 1, 1], group=2),
        node("Add", ["c", "p"], ["s"]),
        node("Relu", ["s"], ["r2"]),
        node("GlobalAveragePool", ["r2"], ["q"]),
        node("Flatten", ["q"], ["f"]),
        node("Gemm", ["f", "wh", "bh"], ["y"], "/head/Gemm", transB=1),
    ]
    weights = {
        "w1": net.first.weight, "g": net.norm.weight, "b": net.norm.bias, "m": net.norm.running_mean,
        "v": net.norm.running_var, "w2": net.second.weight, "b2": net.second.bias, "wh": net.head.weight,
        "bh": net.head.bias,
    }  # fmt: skip
    return write(path, nodes, [("x", TensorProto.FLOAT, ["N", 3, 32, 32])], ["y"], weights)


class Attention(nn.Module):
    """One block of a transformer over token ids, with every product written out."""

    def __init__(self, vocabulary: int = 50, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.words = nn.Embedding(vocabulary, width)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 32), nn.Linear(32, width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        n, length, width = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = torch.softmax(q @ k.transpose(2, 3) / 8**0.5, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(n, length, width))
        return self.head(x + self.down(functional.gelu(self.up(x))))


def attention(path: Path, net: Attention) -> str:
    """The graph, with batch and length free; sizes are calculated from the shape of the input, as exporters do."""
    node = helper.make_node
    nodes = [
        node("Gather", ["words", "ids"], ["x"], "/words/Gather"),
        node("LayerNormalization", ["x", "g", "b"], ["n"], "/norm/LayerNormalization", axis=-1),
        node("MatMul", ["n", "wqkv"], ["q0"], "/qkv/MatMul"),
        node("Add", ["bqkv", "q0"], ["q1"], "/qkv/Add"),
        node("Shape", ["ids"], ["shape"]),
        node("Concat", ["shape", "rest"], ["five"], axis=0),
        node("Reshape", ["q1", "five"], ["q2"]),
        node("Transpose", ["q2"], ["q3"], perm=[2, 0, 3, 1, 4]),
        node("Split", ["q3"], ["qs", "ks", "vs"], axis=0, num_outputs=3),
        *(node("Squeeze", [f"{each}s", "zero"], [each]) for each in "qkv"),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s0"], "/MatMul"),
        node("Constant", [], ["scale"], value=helper.make_tensor("", TensorProto.FLOAT, [], [8**0.5])),
        node("Div", ["s0", "scale"], ["s1"]),
        node("Softmax", ["s1"], ["s2"], axis=-1),
        node("MatMul", ["s2", "v"], ["o0"], "/MatMul_1"),
        node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        node("Constant", [], ["last"], value_ints=[-1]),
        node("Concat", ["shape", "last"], ["three"], axis=0),
        node("Reshape", ["o1", "three"], ["o2"]),
        node("MatMul", ["o2", "wo"], ["o3"], "/out/MatMul"),
        node("Add", ["o3", "bo"], ["o4"], "/out/Add"),
        node("Add", ["x", "o4"], ["x1"]),
        node("MatMul", ["x1", "wu"], ["u0"], "/up/MatMul"),
        node("Add", ["u0", "bu"], ["u1"], "/up/Add"),
        node("Div", ["u1", "root"], ["e0"]),
        node("Erf", ["e0"], ["e1"]),
        node("Add", ["e1", "one"], ["e2"]),
        node("Mul", ["u1", "e2"], ["e3"]),
        node("Mul", ["e3", "half"], ["e4"]),
        node("MatMul", ["e4", "wd"], ["d0"], "/down/MatMul"),
        node("Add", ["d0", "bd"], ["d1"], "/down/Add"),
        node("Add", ["x1", "d1"], ["x2"]),
        node("MatMul", ["x2", "wh"], ["y"], "/head/MatMul"),
    ]
    turned = {"wqkv": net.qkv, "wo": net.out, "wu": net.up, "wd": net.down, "wh": net.head}
    weights: dict[str, Any] = {name: layer.weight.t().contiguous() for name, layer in turned.items()}
    weights |= {"words": net.words.weight, "g": net.norm.weight, "b": net.norm.bias, "bqkv": net.qkv.bias}
    weights |= {"bo": net.out.bias, "bu": net.up.bias, "bd": net.down.bias}
    weights |= {"rest": np.array([3, net.heads, -1]), "zero": np.array([0])}
    weights |= {name: np.array(v, np.float32) for name, v in (("root", 2**0.5), ("one", 1.0), ("half", 0.5))}
    return write(path, nodes, [("ids", TensorProto.INT64, ["batch", "seq"])], ["y"], weights)


class Recurrent(nn.Module):
    """An LSTM in two directions and a GRU on it, sequence first."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 4, bidirectional=True)
        self.gru = nn.GRU(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.gru(self.lstm(x)[0])[0]


def recurrent(path: Path, net: Recurrent) -> str:
    """The graph; gates in ONNX's order: i o f c, and z r h."""
    node = helper.make_node
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["y0", "h", "c"], "/lstm/LSTM", hidden_size=4, direction="bidirectional"),
        node("Transpose", ["y0"], ["y1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["y1", "sizes"], ["y2"]),
        node("GRU", ["y2", "gw", "gr", "gb"], ["g0", ""], "/gru/GRU", hidden_size=5, linear_before_reset=1),
        node("Squeeze", ["g0", "one"], ["y"]),
    ]

    def both(layer: nn.RNNBase, name: str, order: Sequence[int], ends: Sequence[str]) -> torch.Tensor:
        found = []
        for end in ends:
            gates = getattr(layer, f"{name}_l0{end}").detach().chunk(len(order))
            found.append(torch.cat([gates[g] for g in order]))
        return torch.stack(found)

    weights: dict[str, Any] = {"sizes": np.array([0, 0, -1]), "one": np.array([1])}
    for prefix, layer, order, ends in (
        ("", net.lstm, (0, 3, 1, 2), ("", "_reverse")),
        ("g", net.gru, (1, 0, 2), ("",)),
    ):
        weights[f"{prefix}w"] = both(layer, "weight_ih", order, ends)
        weights[f"{prefix}r"] = both(layer, "weight_hh", order, ends)
        pair = [both(layer, name, order, ends) for name in ("bias_ih", "bias_hh")]
        weights[f"{prefix}b"] = torch.cat(pair, 1)
    return write(path, nodes, [("x", TensorProto.FLOAT, ["seq", "N", 6])], ["y"], weights)
