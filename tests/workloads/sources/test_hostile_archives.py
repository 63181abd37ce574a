"""Archives of exported programs that were made to run code: each is refused, and nothing in it is run.

Every payload makes one empty folder in the test's own, which has to be missing afterwards.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.export import Dim

from workloads.sources import get
from workloads.sources.torch_archives import compared_arguments, is_tree
from workloads.sources.torch_export import load

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*isinstance.treespec, LeafSpec:FutureWarning",
    "ignore:The given buffer is not writable:UserWarning",
    "ignore:Duplicate name:UserWarning",  # Python's writer, of what is written twice here
    "ignore:This version of file is deprecated:UserWarning",
)

CONFIG = "net/data/constants/model_constants_config.json"


class Runs:
    """A pickle that makes a folder when it is read."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self):
        return os.mkdir, (str(self.made),)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(3, 2)
        self.shift = torch.ones(2)  # a constant of the program

    def forward(self, x):
        return {"y": self.line(x) + self.shift}


@pytest.fixture(scope="module")
def members(tmp_path_factory) -> dict[str, bytes]:
    """Name → bytes of an archive; its folder is net/."""
    path = tmp_path_factory.mktemp("net") / "net.pt2"
    shapes = {"x": {0: Dim("n", min=2, max=64)}}
    torch.export.save(torch.export.export(Net(), (torch.randn(4, 3),), dynamic_shapes=shapes), str(path))
    with zipfile.ZipFile(path) as archive:
        return {"net/" + name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def write(path: Path, members: Mapping[str, bytes], *more: tuple[str, bytes], packed: bool = False) -> str:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        for name, content in [*members.items(), *more]:
            archive.writestr(name, content)
    return str(path)


def refused(path: str, made: Path, said: str) -> None:
    with pytest.raises(ValueError) as fault:  # noqa: PT011 - its text is held below, after what matters more
        load(path)
    assert not made.exists()
    assert re.search(said, str(fault.value))
    assert str(fault.value).startswith(path)
    assert "\n" not in str(fault.value)


def pointed_at(members: Mapping[str, bytes], file: str) -> dict[str, bytes]:
    """The archive with its constant in another file."""
    document = json.loads(members[CONFIG])
    next(iter(document["config"].values())).update(path_name=file, use_pickle=True)
    return {**members, CONFIG: json.dumps(document).encode()}


def sized(content: bytes, made: Path) -> bytes:
    """The graph with a size that makes a folder."""
    document = json.loads(content)
    sizes = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[0] = {"as_expr": {"expr_str": f"__import__('os').mkdir({str(made)!r})", "hint": None}}
    return json.dumps(document).encode()


def test_the_harmless_one_is_read(members, tmp_path):
    program = load(write(tmp_path / "net.pt2", members))
    assert program.module()(torch.zeros(5, 3))["y"].shape == (5, 2)
    extra = write(tmp_path / "extra.pt2", members, ("net/extra/note.txt", b"trained for 3 days"))
    assert set(load(extra).state_dict) == {"line.weight", "line.bias"}


@pytest.mark.parametrize("file", ["opaque_obj_0/x", "opaque_obj_0", "custom_obj_0/x"])
def test_objects_are_known_by_the_prefix_of_their_path(members, tmp_path, file):
    made = tmp_path / "it_ran"
    evil = pointed_at(members, file)
    content = pickle.dumps(Runs(made))
    refused(write(tmp_path / "evil.pt2", evil, (f"net/data/constants/{file}", content)), made, "holds a pickled object")


@pytest.mark.parametrize(
    "name", ["data/constants/OPAQUE_obj_0", "data/Constants/opaque_obj_0", "Data/constants/opaque_obj_0"]
)
def test_names_in_another_case_are_refused(members, tmp_path, name):
    made = tmp_path / "it_ran"
    file = name.rpartition("/")[2].lower()
    path = write(tmp_path / "evil.pt2", pointed_at(members, file), (f"net/{name}", pickle.dumps(Runs(made))))
    refused(path, made, "holds a pickled object|is no part of an exported program")


@pytest.mark.parametrize("name", ["Models/model.json", "models/MODEL.json", "models/model.json", "models/other.json"])
@pytest.mark.parametrize("first", [True, False])
def test_a_second_graph_is_refused(members, tmp_path, name, first):
    made = tmp_path / "it_ran"
    evil = (f"net/{name}", sized(members["net/models/model.json"], made))
    if first:
        path = tmp_path / "evil.pt2"
        with zipfile.ZipFile(path, "w") as archive:
            for member, content in [evil, *members.items()]:
                archive.writestr(member, content)
    else:
        path = Path(write(tmp_path / "evil.pt2", members, evil))
    refused(str(path), made, "no part of an exported program|more than once|a size that is none|other files for")


def test_the_legacy_form_is_refused(members, tmp_path):
    made, empty = tmp_path / "it_ran", io.BytesIO()
    torch.save({}, empty)
    schema = json.loads(members["net/models/model.json"])["schema_version"]
    path = write(
        tmp_path / "evil.pt2",
        {
            "models/model.json": members["net/models/model.json"],
            "version": f"{schema['major']}.{schema['minor']}".encode(),
            "serialized_exported_program.json": sized(members["net/models/model.json"], made),
            "serialized_state_dict.pt": empty.getvalue(),
            "serialized_constants.pt": empty.getvalue(),
            "serialized_example_inputs.pt": empty.getvalue(),
        },
    )
    refused(path, made, "holds no exported program")


def with_tree(members: Mapping[str, bytes], kind: str, context: object) -> dict[str, bytes]:
    document = json.loads(members["net/models/model.json"])
    leaf = {"type": None, "context": None, "children_spec": []}
    tree = {"type": kind, "context": context, "children_spec": [leaf]}
    document["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] = json.dumps([1, tree])
    return {**members, "net/models/model.json": json.dumps(document).encode()}


def test_a_program_without_the_signature_of_the_whole_is_refused(members, tmp_path):
    document = json.loads(members["net/models/model.json"])
    document["graph_module"]["module_call_graph"][0]["signature"] = None
    evil = {**members, "net/models/model.json": json.dumps(document).encode()}
    workload = get(str(write(tmp_path / "odd.pt2", evil)))
    with pytest.raises(ValueError, match=r"expected the signature of the whole program in its call graph, got none"):
        workload.build(**workload.hyper)


@pytest.mark.parametrize("kind", ["enum", "defaultdict"])
def test_a_tree_spec_imports_nothing(members, tmp_path, monkeypatch, kind):
    made, module = tmp_path / "it_ran", f"imported_by_a_{kind}"
    (tmp_path / f"{module}.py").write_text(f"import os\nos.mkdir({str(made)!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    enum = json.dumps([{"__enum__": True, "fqn": f"{module}:Color", "name": "RED"}]).replace("_", "\\u005f")
    default = {"default_factory_module": module, "default_factory_name": "make", "dict_context": ["y"]}
    if kind == "enum":
        evil = with_tree(members, "builtins.dict", enum)
    else:
        evil = with_tree(members, "collections.defaultdict", default)
    refused(write(tmp_path / "evil.pt2", evil), made, "nests inputs or outputs in more than")


@pytest.mark.parametrize(
    ("tree", "is_one"),
    [
        ([1, {"type": None, "context": None, "children_spec": []}], True),
        ([1, {"type": "builtins.dict", "context": '["a"]', "children_spec": []}], True),
        ([1, {"type": "builtins.dict", "context": '[{"__enum__": true}]', "children_spec": []}], False),
        ([1, {"type": "collections.defaultdict", "context": "[]", "children_spec": []}], False),
        ([2, {"type": None, "context": None, "children_spec": []}], False),
        ([1, {"type": ["builtins.dict"], "context": "[]", "children_spec": []}], False),
        ([1, 7], False),
        (7, False),
    ],
)
def test_trees(tree, is_one):
    assert is_tree(json.dumps(tree)) is is_one


def test_sizes_of_tensors_without_bytes_are_not_allocated(members, tmp_path):
    document = json.loads(members[CONFIG])
    next(iter(document["config"].values()))["tensor_meta"]["sizes"] = [{"as_int": 2**50}]
    evil = {**members, CONFIG: json.dumps(document).encode(), "net/data/constants/tensor_0": b""}
    refused(write(tmp_path / "evil.pt2", evil), tmp_path / "it_ran", "elements and no bytes")


def calling(content: bytes, *nodes: dict) -> bytes:
    """The graph with other calls before its own; each has one output that looks like the program's constant."""
    document = json.loads(content)
    graph = document["graph_module"]["graph"]
    constant = next(name for name in graph["tensor_values"] if name.startswith("c_"))
    for place, node in enumerate(nodes):
        name = f"more_{place}"
        graph["tensor_values"][name] = graph["tensor_values"][constant]
        whole = {"outputs": [{"as_tensor": {"name": name}}], "metadata": graph["nodes"][0]["metadata"], "name": name}
        graph["nodes"].insert(place, {**whole, "is_hop_single_tensor_return": None, **node})
    return json.dumps(document).encode()


def given(name: str, kind: str, value: object) -> dict:
    return {"name": name, "arg": {kind: value}, "kind": 1}


@pytest.mark.parametrize("size", ["Max({})", "Min({})", "Max(s0, Min({}))"])
def test_a_size_of_many_maxima_is_refused(members, tmp_path, size):
    """sympy compares each of them with each other one: 1,500 took minutes."""
    document = json.loads(members["net/models/model.json"])
    sizes = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[0] = {"as_expr": {"expr_str": size.format(", ".join(f"s{n}" for n in range(1500))), "hint": None}}
    path = write(tmp_path / "evil.pt2", {**members, "net/models/model.json": json.dumps(document).encode()})
    refused(
        path, tmp_path / "none", r"holds a size of 150[02] arguments of maxima: more than 64 .*size_arguments=N raises"
    )


def test_few_maxima_are_a_size():
    assert compared_arguments("Max(1, s0, Min(s1, s2 + Max(2, s3)))") == 3 + 2 + 2
    assert compared_arguments("s0 * FloorDiv(s1, 2)") == 0


def test_operations_that_write_files_are_refused(members, tmp_path):
    """aten.from_file makes a file of any name, and what is filled in stands in it."""
    made = tmp_path / "it_ran"
    opened = [given("filename", "as_string", str(made)), given("shared", "as_bool", True), given("size", "as_int", 2)]
    filled = [given("self", "as_tensor", {"name": "more_0"}), given("value", "as_float", 2.0)]
    graph = calling(
        members["net/models/model.json"],
        {"target": "torch.ops.aten.from_file.default", "inputs": opened},
        {"target": "torch.ops.aten.fill_.Scalar", "inputs": filled},
    )
    evil = write(tmp_path / "evil.pt2", {**members, "net/models/model.json": graph})
    refused(evil, made, "calls 'torch.ops.aten.from_file.default', which is no operation that is known here")
    torch.from_file(str(made), shared=True, size=2).fill_(2.0)
    assert made.read_bytes() == b"\0\0\0\x40" * 2  # what it does where nothing is checked


@pytest.mark.parametrize(
    "target",
    [
        "os.system", "builtins.eval", "torch.load", "torch.relu", "operator.pow", "torch.ops.image.write_file.default",
        "torch.ops.debugprims.load_tensor.default", "torch.ops.higher_order.inductor_compiled_code",
        "torch.ops.higher_order.call_torchbind", "torch.ops.c10d.send.default", "torch.ops.aten", "", 3, ["a"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("place", ["node", "argument"])
def test_only_operations_that_calculate_are_called(members, tmp_path, target, place):
    """In a node, and as an argument of an operation that runs another."""
    inner = [given("op", "as_operator", target)]
    node = {"target": "torch.ops.higher_order.auto_functionalized_v2", "inputs": inner}
    if place == "node":
        node = {"target": target, "inputs": []}
    evil = {**members, "net/models/model.json": calling(members["net/models/model.json"], node)}
    refused(
        write(tmp_path / "evil.pt2", evil), tmp_path / "it_ran", "calls .*, which is no operation that is known here"
    )


def test_archives_do_not_unpack(members, tmp_path):
    """A compressed member may be a thousand times its bytes; torch.export.save does not compress."""
    bomb = {**members, "net/data/weights/weight_7": bytes(10**6)}
    refused(write(tmp_path / "evil.pt2", bomb, packed=True), tmp_path / "it_ran", "compressed")


@pytest.mark.parametrize("content", [b"[" * 200_000, b"9" * 5_000, b'{"schema_version": []}', b"\xff"])
def test_damaged_documents_are_one_line(members, tmp_path, content):
    evil = write(tmp_path / "evil.pt2", {**members, "net/models/model.json": content})
    refused(evil, tmp_path / "it_ran", "damaged|has version None")


def test_the_payloads_run_where_nothing_is_checked(tmp_path):
    made = tmp_path / "it_ran"
    pickle.loads(pickle.dumps(Runs(made)))
    assert made.exists()
