"""ONNX graphs as workloads: the same outputs and the same counts as the PyTorch module that they are the graph of."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.oracles.graph_counts import of_module, of_workload

onnx = pytest.importorskip("onnx", reason="onnx is not installed")

from onnx import TensorProto, helper  # noqa: E402

from results.errors import Unavailable  # noqa: E402
from runners.count import command  # noqa: E402
from tests.support.fakes.commands import running  # noqa: E402
from tests.support.nets import onnx_files  # noqa: E402  it needs onnx
from workloads.catalogue import model_names  # noqa: E402
from workloads.sources.any_model import get  # noqa: E402

NETS = {
    "convolutions": (onnx_files.Convolutions, onnx_files.convolutions),
    "attention": (onnx_files.Attention, onnx_files.attention),
    "recurrent": (onnx_files.Recurrent, onnx_files.recurrent),
}


def inputs_of(workload: Any, size: int) -> tuple[Any, ...]:
    return workload.batch(workload.hyper, size, torch.device("cpu"), torch.Generator().manual_seed(1)).inputs


@pytest.mark.parametrize("name", NETS)
def test_it_calculates_and_counts_as_the_module_does(tmp_path, name):
    kind, write = NETS[name]
    torch.manual_seed(0)
    net = kind().train()
    workload = get(write(tmp_path / "net.onnx", net))
    inputs = inputs_of(workload, 3)
    model = workload.build()
    torch.testing.assert_close(model(*inputs), copy.deepcopy(net)(*inputs), atol=1e-5, rtol=1e-4)
    assert of_workload(workload, 3) == of_module(copy.deepcopy(net), *inputs)
    trained = sum(parameter.numel() for parameter in workload.build().parameters())
    assert trained == sum(parameter.numel() for parameter in net.parameters())


def test_running_means_are_kept_and_not_trained(tmp_path):
    net = onnx_files.Convolutions()
    workload = get(onnx_files.convolutions(tmp_path / "net.onnx", net))
    model, inputs = workload.build(), inputs_of(workload, 4)
    model(*inputs), net(*inputs)
    torch.testing.assert_close(model.norm.BatchNormalization.mean, net.norm.running_mean)
    torch.testing.assert_close(model.eval()(*inputs), net.eval()(*inputs))


def test_modules_have_the_paths_of_the_nodes(tmp_path):
    model = get(onnx_files.attention(tmp_path / "net.onnx", onnx_files.Attention())).build()
    names = [name for name, _ in model.named_parameters()]
    assert names[:3] == ["words.Gather.weight", "norm.LayerNormalization.weight", "norm.LayerNormalization.bias"]
    copy.deepcopy(model)(torch.zeros(2, 3, dtype=torch.int64)).sum().backward()


def test_dimensions_have_names_and_defaults(tmp_path):
    path = onnx_files.attention(tmp_path / "net.onnx", onnx_files.Attention())
    workload = get(path, seq=5)
    assert get(path).hyper == {"seq": 128}
    ids = inputs_of(workload, 64)[0]
    assert ids.shape == (64, 5)
    assert 45 < int(ids.max()) < 50  # below the vocabulary
    assert get(path, batch="seq").hyper == {"batch": 16}
    with pytest.raises(ValueError, match="has no length; it has seq"):
        get(path, length=3)


def one(path: Path, node: Any, weights: dict[str, Any] | None = None, sizes: Any = ("N", 4), opset: int = 18) -> str:
    """A graph of one node that reads "x", and a product before it, so that there is something to train."""
    product = helper.make_node("MatMul", ["x", "w"], ["m"])
    known = {"w": torch.eye(sizes[-1]) + torch.eye(sizes[-1]).flip(0)} | (weights or {})
    return onnx_files.write(path, [product, node], [("x", TensorProto.FLOAT, sizes)], ["y"], known, opset)


def as_array(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


X = torch.randn(2, 4, generator=torch.Generator().manual_seed(3))
M = X @ (torch.eye(4) + torch.eye(4).flip(0))

OPERATORS: dict[str, tuple[Any, dict[str, Any], int, Any]] = {
    "softmax before 13": (helper.make_node("Softmax", ["m"], ["y"]), {}, 11, lambda m: m.softmax(1)),
    "log softmax": (helper.make_node("LogSoftmax", ["m"], ["y"], axis=0), {}, 18, lambda m: m.log_softmax(0)),
    "clip": (
        helper.make_node("Clip", ["m", "lo", "hi"], ["y"]),
        {"lo": np.array(0, np.float32), "hi": np.array(6, np.float32)},
        18,
        lambda m: m.clamp(0, 6),
    ),
    "clip before 11": (helper.make_node("Clip", ["m"], ["y"], max=1.0), {}, 10, lambda m: m.clamp(max=1)),
    "reduce mean": (helper.make_node("ReduceMean", ["m"], ["y"], axes=[1]), {}, 13, lambda m: m.mean(1, True)),
    "reduce sum": (
        helper.make_node("ReduceSum", ["m", "ax"], ["y"], keepdims=0),
        {"ax": np.array([-1])},
        18,
        lambda m: m.sum(1),
    ),
    "slice backwards": (
        helper.make_node("Slice", ["m", "a", "b", "ax", "st"], ["y"]),
        {"a": np.array([-1]), "b": np.array([-(2**63)]), "ax": np.array([1]), "st": np.array([-1])},
        18,
        lambda m: m.flip(1),
    ),
    "slice before 10": (
        helper.make_node("Slice", ["m"], ["y"], starts=[1], ends=[3], axes=[1]),
        {},
        9,
        lambda m: m[:, 1:3],
    ),
    "pad": (
        helper.make_node("Pad", ["m", "p"], ["y"]),
        {"p": np.array([0, 1, 2, 0])},
        18,
        lambda m: torch.nn.functional.pad(m, (1, 0, 0, 2)),
    ),
    "where with a mask": (
        helper.make_node("Where", ["c", "m", "low"], ["y"]),
        {"c": np.array([True, False, True, True]), "low": as_array(-1e30)},
        18,
        lambda m: torch.where(torch.tensor([True, False, True, True]), m, -1e30),
    ),
    "expand": (
        helper.make_node("Expand", ["m", "s"], ["y"]),
        {"s": np.array([3, 1, 4])},
        18,
        lambda m: m.expand(3, 2, 4),
    ),
    "gelu": (
        helper.make_node("Gelu", ["m"], ["y"], approximate="tanh"),
        {},
        20,
        lambda m: torch.nn.functional.gelu(m, approximate="tanh"),
    ),
    "hard sigmoid": (
        helper.make_node("HardSigmoid", ["m"], ["y"], alpha=1 / 6),
        {},
        18,
        torch.nn.functional.hardsigmoid,
    ),
    "power": (helper.make_node("Pow", ["m", "p"], ["y"]), {"p": np.array(2, np.float32)}, 18, lambda m: m**2),
    "einsum": (helper.make_node("Einsum", ["m", "m"], ["y"], equation="ij,kj->ik"), {}, 18, lambda m: m @ m.t()),
    "one row": (helper.make_node("Gather", ["m", "i"], ["y"], axis=1), {"i": np.array(2)}, 18, lambda m: m[:, 2]),
    "rows": (
        helper.make_node("Gather", ["m", "i"], ["y"], axis=1),
        {"i": np.array([2, 0])},
        18,
        lambda m: m[:, [2, 0]],
    ),
    "gemm": (
        helper.make_node("Gemm", ["m", "b", "c"], ["y"], alpha=2.0, beta=0.5, transA=1),
        {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "c": as_array(1, 2, 3)},
        18,
        lambda m: 2 * m.t() @ torch.arange(6.0).reshape(2, 3) + 0.5 * torch.tensor([1.0, 2, 3]),
    ),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_several_versions(tmp_path, name):
    node, weights, opset, expected = OPERATORS[name]
    model = get(one(tmp_path / "one.onnx", node, weights, (2, 4), opset)).build()
    torch.testing.assert_close(model(X), expected(M))
    model(X).sum().backward()


def test_windows_with_padding_by_name(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], auto_pad="SAME_UPPER", strides=[2, 2], kernel_shape=[3, 3]),
        helper.make_node("AveragePool", ["a"], ["y"], kernel_shape=[2, 2], auto_pad="SAME_UPPER", count_include_pad=1),
    ]
    weight, x = torch.randn(2, 1, 3, 3), torch.randn(1, 1, 6, 6)
    path = onnx_files.write(
        tmp_path / "w.onnx", nodes, [("x", TensorProto.FLOAT, ["N", 1, 6, 6])], ["y"], {"w": weight}
    )
    after = torch.nn.functional.pad(x, (0, 1, 0, 1))  # 6 → 3 by steps of 2: (3 - 1)·2 + 3 - 6 = 1, behind
    made = torch.nn.functional.conv2d(after, weight, stride=2)
    expected = torch.nn.functional.avg_pool2d(torch.nn.functional.pad(made, (0, 1, 0, 1)), 2, 1)
    torch.testing.assert_close(get(path).build()(x), expected)


def test_a_mask_and_a_number_are_no_weights(tmp_path):
    mask = np.triu(np.full((4, 4), -np.inf, np.float32), 1)
    add = helper.make_node("Add", ["m", "mask"], ["y"])
    model = get(one(tmp_path / "mask.onnx", add, {"mask": mask}, (4, 4))).build()
    assert [name for name, _ in model.named_parameters()] == ["MatMul_0.weight"]
    assert model(torch.ones(4, 4))[0, 1] == -torch.inf


def test_sizes_that_are_taken_apart_and_put_together(tmp_path):
    """As TorchScript's exporter writes `x.reshape(x.shape[0], -1, 2)`: each size on its own, then a tensor of ones."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["m"]),
        node("Shape", ["m"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "axis"], ["n1"]),
        node("Concat", ["n1", "rest"], ["sizes"], axis=0),
        node("Reshape", ["m", "sizes"], ["r"]),
        node("Mul", ["n", "two"], ["n2"]),
        node("Unsqueeze", ["n2", "axis"], ["n3"]),
        node("ConstantOfShape", ["n3"], ["ones"], value=helper.make_tensor("", TensorProto.FLOAT, [1], [1.0])),
        node("Reshape", ["ones", "sizes2"], ["o"]),
        node("Mul", ["r", "o"], ["y"]),
    ]
    weights = {"w": torch.eye(4), "zero": np.array(0), "axis": np.array([0]), "two": np.array(2)}
    weights |= {"rest": np.array([-1, 2]), "sizes2": np.array([-1, 2, 1])}
    path = onnx_files.write(tmp_path / "s.onnx", nodes, [("x", TensorProto.FLOAT, ["N", 4])], ["y"], weights)
    x = torch.randn(3, 4)
    torch.testing.assert_close(get(path).build()(x), x.reshape(3, 2, 2))


def test_shared_weights_stay_shared(tmp_path):
    again = helper.make_node("MatMul", ["m", "w"], ["y"])
    model = get(one(tmp_path / "twice.onnx", again)).build()
    assert len(list(model.parameters())) == 1


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (
            helper.make_node("Sofmax", ["m"], ["y"]),
            "ONNX operator Sofmax (node 'Sofmax_1') is not known; nearest: Softmax",
        ),
        (helper.make_node("NonZero", ["m"], ["y"]), "ONNX operator NonZero"),
        (helper.make_node("FusedMatMul", ["m", "w"], ["y"], domain="com.microsoft"), "com.microsoft.FusedMatMul"),
    ],
)
def test_an_unknown_operator_is_named(tmp_path, node, said):
    with pytest.raises(ValueError, match=r"one.onnx: ONNX operator") as fault:
        get(one(tmp_path / "one.onnx", node))
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("name", ["layer7", "MatMul", "xin1", "wei1", "items"])
def test_a_name_that_is_no_text_is_refused(tmp_path, name):
    node = helper.make_node("MatMul", ["xin1", "wei1"], ["y"], name="layer7")
    shapes = {"wei1": torch.ones(2, 3)}
    path = Path(
        onnx_files.write(tmp_path / "d.onnx", [node], [("xin1", TensorProto.FLOAT, ["items", 2])], ["y"], shapes)
    )
    whole = path.read_bytes()
    assert name.encode() in whole
    path.write_bytes(whole.replace(name.encode(), b"\xff" + name.encode()[1:]))
    with pytest.raises(ValueError, match="expected names in UTF-8"):
        get(str(path))
    path.write_bytes(whole.replace(name.encode(), b"\n" + name.encode()[1:]))
    with pytest.raises(ValueError, match="expected names of one line") as fault:
        get(str(path))
    assert "\n" not in str(fault.value)


def test_a_size_that_depends_on_data_is_refused(tmp_path):
    nodes = [
        helper.make_node("Cast", ["x"], ["i"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["w", "i"], ["y"]),
    ]
    path = onnx_files.write(tmp_path / "d.onnx", nodes, [("x", TensorProto.FLOAT, [2])], ["y"], {"w": torch.ones(2, 3)})
    with pytest.raises(ValueError, match=r"Reshape.*depends on data"):
        get(path).build()(torch.tensor([3.0, 2.0]))


def test_recurrent_forms_that_torch_has_not_are_refused(tmp_path):
    shapes = {"w": torch.zeros(1, 9, 4), "r": torch.zeros(1, 9, 3)}
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=3)
    path = onnx_files.write(tmp_path / "g.onnx", [node], [("x", TensorProto.FLOAT, [5, 2, 4])], ["y"], shapes)
    with pytest.raises(ValueError, match=r"g.onnx: ONNX operator GRU .*linear_before_reset 0 is not known"):
        get(path).build()


@pytest.mark.parametrize("damage", ["truncated", "noise", "version", "empty", "missing", "weights"])
def test_damaged_files_are_one_line(tmp_path, damage):
    good = Path(one(tmp_path / "good.onnx", helper.make_node("Relu", ["m"], ["y"])))
    bad = tmp_path / "bad.onnx"
    if damage == "truncated":
        bad.write_bytes(good.read_bytes()[:-40])
    elif damage == "noise":
        bad.write_bytes(b"\xff\x00no graph" * 20)
    elif damage == "version":
        model = onnx.load(good)
        model.opset_import[0].version = 999
        onnx.save(model, bad)
    elif damage == "empty":
        bad.write_bytes(b"")
    elif damage == "weights":
        model = onnx.load(good)
        onnx.save_model(model, bad, save_as_external_data=True, location="w.bin", size_threshold=0)
        (tmp_path / "w.bin").unlink()
    with pytest.raises(ValueError, match=r"bad\.onnx") as fault:
        get(str(bad))
    assert "\n" not in str(fault.value)
    expected = {"version": "version 999", "empty": "is empty", "missing": "there is no file; nearest: good.onnx"}
    assert expected.get(damage, "bad.onnx").split(";")[0] in str(fault.value)


def test_without_the_package_it_says_what_to_install(tmp_path, monkeypatch):
    path = one(tmp_path / "one.onnx", helper.make_node("Relu", ["m"], ["y"]))
    monkeypatch.setattr(model_names.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(Unavailable) as fault:
        get(path)
    assert str(fault.value) == "onnx is not installed: python -m pip install 'onnx>=1.17,<2'"


def test_the_command_counts_it(tmp_path, capsys):
    path = onnx_files.convolutions(tmp_path / "net.onnx", onnx_files.Convolutions())
    words = ("--batch-size", "2", "--batch", "N", "--counters", "exact")
    code, _, err = running(command.main, capsys)(path, *words)
    assert code == 0, err
