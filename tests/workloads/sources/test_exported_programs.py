"""Programs from torch.export as workloads: the same counts as the module they came from, and no code of the file's."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim
from torchvision.models.resnet import BasicBlock, ResNet

from runners.count import command
from tests.support.fakes.commands import refused, running
from tests.support.oracles.graph_counts import of_module, of_workload
from workloads.sources.any_model import get
from workloads.sources.torch_archives import is_size

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*isinstance.treespec, LeafSpec:FutureWarning",  # torch 2.11's own export, of its own types
    "ignore:The given buffer is not writable:UserWarning",  # torch 2.11's reader of archives
)


class Reader(nn.Module):
    """A small transformer over token ids, with a mask that may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(99, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 99)

    def forward(self, ids, scale=None, mask=None):
        x = self.words(ids)
        return self.head(self.layer(x if scale is None else x * scale, src_key_padding_mask=mask))


def save(path: Path, model: nn.Module, inputs: tuple, shapes=None, **named) -> str:
    torch.export.save(torch.export.export(model, inputs, named, dynamic_shapes=shapes), str(path))
    return str(path)


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> str:
    shapes = {"ids": {0: Dim("batch"), 1: Dim("length", min=2, max=64)}}
    path = tmp_path_factory.mktemp("reader") / "reader.pt2"
    return save(path, Reader().eval(), (torch.randint(0, 99, (2, 7)),), shapes)


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    """ResNet-18's shape with one block a stage."""
    torch.manual_seed(0)
    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)


def test_a_residual_network_counts_as_the_module_does(tmp_path, resnet):
    images = torch.randn(2, 3, 32, 32)
    path = save(tmp_path / "net.pt2", copy.deepcopy(resnet).eval(), (images,), {"x": {0: Dim("batch")}})
    workload = get(path)
    assert workload.hyper == {}
    assert of_workload(workload, 4) == of_module(copy.deepcopy(resnet), torch.randn(4, 3, 32, 32))
    assert {name for name, _ in workload.build().named_parameters()} == {n for n, _ in resnet.named_parameters()}


def test_what_was_exported_in_evaluation_trains(tmp_path, resnet):
    images = torch.randn(4, 3, 32, 32)
    path = save(tmp_path / "net.pt2", copy.deepcopy(resnet).eval(), (images,))
    model, original = get(path).build(), copy.deepcopy(resnet).train()
    for parameter in model.parameters():
        assert parameter.requires_grad
    torch.testing.assert_close(model(images), original(images))
    torch.testing.assert_close(model.bn1.running_mean, original.bn1.running_mean)
    model.eval().train()
    copy.deepcopy(model)(images).sum().backward()


class Shifted(nn.Module):
    """A tensor that is neither parameter nor buffer, inside of a module that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.shift = nn.Linear(4, 4), torch.tensor([1.0, 2.0, 3.0, 4.0])

    def forward(self, x):
        return self.line(x) + self.shift


def test_constants_of_a_program_are_in_its_modules(tmp_path):
    model = nn.Sequential(Shifted(), Shifted())
    rows = torch.randn(2, 4)
    workload = get(save(tmp_path / "net.pt2", model, (rows,)))
    built = workload.build()
    assert torch.equal(built(rows)[0] if isinstance(built(rows), tuple) else built(rows), model(rows))
    assert {*built.state_dict()} == {*model.state_dict()}
    assert [each.tolist() for each in built.buffers()] == [[1, 2, 3, 4], [1, 2, 3, 4]]  # moved with the module
    assert of_workload(workload, 2) == of_module(model, rows)


def test_each_build_is_a_module_of_its_own(reader):
    workload = get(reader)
    one, two = workload.build(), workload.build()
    with torch.no_grad():
        one.head.weight.zero_()
    assert two.head.weight.abs().max() > 0
    with torch.device("meta"):
        on_meta = workload.build()
    assert {tensor.device.type for tensor in on_meta.state_dict().values()} == {"meta"}
    assert on_meta(torch.zeros(3, 5, dtype=torch.int64, device="meta")).shape == (3, 5, 99)


def test_dimensions_are_sizes_and_whole_numbers_stay_below_the_table(reader):
    workload = get(reader, ids_1=9)
    assert workload.hyper == {"ids_1": 9}
    assert get(reader).hyper == {"ids_1": 7}  # the size it was exported with
    ids = workload.batch(workload.hyper, 50, torch.device("cpu"), torch.Generator().manual_seed(0)).inputs[0]
    assert ids.shape == (50, 9)
    assert ids.dtype is torch.int64
    assert int(ids.min()) >= 0
    assert 90 < int(ids.max()) < 99  # 450 numbers below 99
    torch.manual_seed(0)
    assert of_workload(workload, 3) == of_module(Reader(), torch.randint(0, 99, (3, 9)))
    other = get(reader, batch="ids_1")
    assert other.hyper == {"ids_0": 2}
    assert other.batch(other.hyper, 8, torch.device("cpu"), None).inputs[0].shape == (2, 8)


def test_inputs_by_name_and_inputs_left_out(tmp_path):
    shapes = {"ids": {0: Dim("b")}, "scale": None, "mask": {0: Dim("b")}}
    inputs = {"ids": torch.randint(0, 99, (2, 5)), "scale": None, "mask": torch.zeros(2, 5, dtype=torch.bool)}
    workload = get(save(tmp_path / "named.pt2", Reader(), (), shapes, **inputs))
    batch = workload.batch(workload.hyper, 3, torch.device("cpu"), torch.Generator().manual_seed(0))
    ids, scale, mask = batch.inputs
    assert scale is None
    assert mask.dtype is torch.bool
    assert mask.shape == ids.shape == (3, 5)
    workload.loss(workload.build()(*batch.inputs), None).backward()


def test_devices_in_the_graph_become_the_one_asked_for(tmp_path):
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(4, 4)

        def forward(self, x):
            return self.line(x) + torch.ones(4, device="cpu")

    path = save(tmp_path / "adds.pt2", Adds(), (torch.randn(2, 4),), {"x": {0: Dim("n")}})
    with torch.device("meta"):
        model = get(path).build()
    assert model(torch.zeros(5, 4, device="meta")).device.type == "meta"


@pytest.mark.parametrize(
    ("size", "hyper", "said"),
    [
        (2, {"ids_1": 65}, "takes ids_1 of 2 to 64, got 65"),
        (2, {"ids_1": 1}, "takes ids_1 of 2 to 64, got 1"),
        (2, {"seq": 9}, "has no seq; it has ids_1"),
    ],
)
def test_sizes_that_it_does_not_take(reader, size, hyper, said):
    def draw():
        workload = get(reader, **hyper)
        return workload.batch(workload.hyper, size, torch.device("cpu"), None)

    with pytest.raises(ValueError, match="pt2") as fault:
        draw()
    assert said in str(fault.value)


def test_a_fixed_batch_says_which(tmp_path):
    workload = get(save(tmp_path / "fixed.pt2", nn.Linear(3, 2), (torch.randn(5, 3),)))
    assert workload.batch({}, 5, torch.device("cpu"), None).inputs[0].shape == (5, 3)
    with pytest.raises(ValueError, match="input has 5 in front; say --batch-size 5"):
        workload.batch({}, 1, torch.device("cpu"), None)
    with pytest.raises(ValueError, match="there is no dimension 'N'; it has none"):
        get(workload.name, batch="N")
    with pytest.raises(ValueError, match="leave --input out"):
        get(workload.name, input="3x4")


# --- files that are none ---------------------------------------------------------------------------------------------


def changed(path: str, target: Path, change) -> str:
    """A copy of an archive, each member's bytes changed: change(name, bytes) → bytes, or None to leave it out."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            made = change(name, old.read(name))
            if made is not None:
                new.writestr(name, made)
    return str(target)


class Runs:
    """A pickle that makes a file when it is read."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


@pytest.mark.parametrize("place", ["sample_inputs", "weights"])
def test_nothing_pickled_is_run(reader, tmp_path, place):
    made = tmp_path / "it_ran"
    kept = io.BytesIO()
    torch.save((Runs(made),), kept, pickle_protocol=2)

    def change(name: str, content: bytes) -> bytes:
        if place == "sample_inputs" and "/sample_inputs/" in name:
            return kept.getvalue()
        if place == "weights" and name.endswith("_weights_config.json"):
            config = json.loads(content)
            next(iter(config["config"].values()))["use_pickle"] = True
            return json.dumps(config).encode()
        return kept.getvalue() if place == "weights" and name.endswith("/weight_0") else content

    evil = changed(reader, tmp_path / "evil.pt2", change)
    with pytest.raises(ValueError, match=r"evil.pt2 .* is not loaded: only (tensors|weights) are") as fault:
        get(evil)
    assert "\n" not in str(fault.value)
    assert "weights_only" not in str(fault.value)  # torch advises to turn it off
    assert not made.exists()
    assert pickle.loads(pickle.dumps(Runs(made))) is None  # the pickle does what it says
    assert made.exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("reader/data/constants/opaque_obj_0", "holds a pickled object"),
        ("reader/data/constants/custom_obj_0", "holds a pickled object"),
        ("reader/data/aotinductor/model/a.so", "holds compiled code"),
    ],
)
def test_objects_and_code_are_refused_unread(reader, tmp_path, name, said):
    evil = changed(reader, tmp_path / "evil.pt2", lambda _name, content: content)
    with zipfile.ZipFile(evil, "a") as archive:
        archive.writestr(name, b"\x80")
    with pytest.raises(ValueError, match=said):
        get(evil)


def in_graph(reader: str, target: Path, change) -> str:
    def one(name: str, content: bytes) -> bytes:
        if "/models/" not in name:
            return content
        document = json.loads(content)
        change(document)
        return json.dumps(document).encode()

    return changed(reader, target, one)


def test_a_size_is_no_program(reader, tmp_path):
    made = tmp_path / "it_ran"

    def change(document) -> None:
        sizes = document["graph_module"]["graph"]["tensor_values"]["ids"]["sizes"]
        assert "expr_str" in json.dumps(sizes[0])
        sizes[0] = {"as_expr": {"expr_str": f"__import__('os').mkdir({str(made)!r})", "hint": None}}

    with pytest.raises(ValueError, match="holds a size that is none"):
        get(in_graph(reader, tmp_path / "evil.pt2", change))
    assert not made.exists()


def test_a_graph_calls_operations_alone(reader, tmp_path):
    def change(document) -> None:
        node = next(n for n in document["graph_module"]["graph"]["nodes"] if n["target"].endswith("relu.default"))
        node["target"] = "torch.relu"

    with pytest.raises(ValueError, match=r"evil.pt2 "):
        get(in_graph(reader, tmp_path / "evil.pt2", change))


def test_the_cause_is_told_and_not_that_torch_has_logged_it(reader, tmp_path):
    def change(document) -> None:
        node = next(n for n in document["graph_module"]["graph"]["nodes"] if n["target"].endswith("relu.default"))
        node["target"] = "torch.ops.aten.no_such_operation.default"

    with pytest.raises(ValueError, match=r"evil.pt2 cannot be loaded by torch .*no_such_operation"):
        get(in_graph(reader, tmp_path / "evil.pt2", change))


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("s77", True),
        ("Mul(Symbol('s23', positive=True, integer=True), Integer(-1))", True),
        ("2*s0 + s1//3", True),
        ("FloorDiv(s0, 2)", True),
        ("Eq(s0, 3) & (s1 < 4)", True),
        ("eval('1')", False),
        ("Symbol('s0').__class__", False),
        ("Symbol('a b')", False),
        ("(lambda: 1)()", False),
        ("[x for x in (1,)]", False),
        ("os", False),
        ("f's0'", False),
        ("s0(", False),
        ("Symbol('s1')('s0')", False),
        ("s0**2 + 2**s1", True),
        ("Pow(Symbol('s0', integer=True), Integer(-1))", True),
        ("Piecewise((s0, Eq(s1, 3)), (1, True))", True),
        ("((9**1000)**1000)**1000", False),
        ("(9**60)**60", False),
        ("Pow(9, Mul(64, 64, 64, 64))", False),
        ("1 << 1000000000", False),
        ("Rational('1e999999999')", False),
        ("Float('1.5', 1000000000)", False),
        ("'s0' * 1000000000", False),
        ("(s0, s0) * 1000000000", False),
        (7, False),
        ("(" * 20_000, False),
    ],
)
def test_sizes(text, is_one):
    assert is_size(text) is is_one


def version_99(document) -> None:
    document["schema_version"]["major"] = 99


@pytest.mark.parametrize("damage", ["truncated", "noise", "weights", "empty", "missing", "version"])
def test_damaged_files_are_one_line(reader, tmp_path, damage):
    whole, bad = Path(reader).read_bytes(), tmp_path / "bad.pt2"
    if damage == "truncated":
        bad.write_bytes(whole[: len(whole) // 2])
    elif damage == "noise":
        bad.write_bytes(os.urandom(500))
    elif damage == "weights":
        torch.save({"weight": torch.ones(2)}, bad)
    elif damage == "empty":
        bad.write_bytes(b"")
    elif damage == "version":
        in_graph(reader, bad, version_99)
    with pytest.raises(ValueError, match=r"bad\.pt2") as fault:
        get(str(bad))
    assert "\n" not in str(fault.value)
    expected = {
        "truncated": "damaged", "noise": "damaged", "weights": "holds no exported program", "empty": "is empty",
        "missing": "there is no file", "version": "version",
    }  # fmt: skip
    assert expected[damage] in str(fault.value)


def test_the_command_counts_it_and_refuses_what_is_none(reader, tmp_path, capsys):
    run = running(command.main, capsys)
    words = ("--counters", "exact", "--format", "json")
    code, out, err = run(reader, "--batch-size", "4", *words)
    assert code == 0, err
    counted = of_workload(get(reader), 4)
    text = json.dumps(json.loads(out))
    assert str(counted["forward"]) in text
    assert str(counted["backward"]) in text
    (tmp_path / "bad.pt2").write_bytes(b"PK\x03\x04")
    for bad in ("nowhere.pt2", str(tmp_path / "bad.pt2")):
        refused(run(bad, *words))
