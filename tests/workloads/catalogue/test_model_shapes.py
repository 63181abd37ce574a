"""Definition, injected fault: the grammar of --input, the checksum of a model's files, and configurations refused."""

import json
from pathlib import Path

import pytest
import torch

from workloads.any_model import draw
from workloads.catalogue.model_names import Shape, model_digest, parse, parse_shapes, read_config

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("3x224x224", [Shape((3, 224, 224))]),
        ("128:int64:30522", [Shape((128,), "int64", 30522)]),
        (":int64:10", [Shape((), "int64", 10)]),
        ("3x8x8, 16:int32:9", [Shape((3, 8, 8)), Shape((16,), "int32", 9)]),
        ("4:bool", [Shape((4,), "bool")]),
        ("7,mask=5x5:bool", [Shape((7,)), Shape((5, 5), "bool", 0, "mask")]),
        ("scale=:float64", [Shape((), "float64", 0, "scale")]),
    ],
)
def test_shapes(text, shapes):
    assert parse_shapes(text) == tuple(shapes)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected [NAME=]SIZExSIZE"),
        ("3x224x224,", "got ''"),
        ("3*224", "got '3*224'"),
        ("3x-1", "got '3x-1'"),
        ("0x3", "got '0x3'"),
        ("3x²", "got '3x²'"),
        ("3:float8", "with a DTYPE of float32, float64"),
        ("128:int64", "BELOW, 2 or more"),
        ("128:int64:1", "BELOW, 2 or more"),
        ("128:int64:x", "BELOW, 2 or more"),
        ("128:float32:9", "for int64 and int32 only"),
        ("128:int64:9:9", "expected [NAME=]"),
        ("a-b=3", "expected [NAME=]"),
        ("a=3,4", "an input without a name comes after one with a name"),
        ("a=3,a=4", "expected each name once"),
    ],
)
def test_mistakes_are_one_line(text, said):
    with pytest.raises(ValueError, match="--input") as fault:
        parse_shapes(text)
    assert said in str(fault.value)
    assert repr(text) in str(fault.value)
    assert "\n" not in str(fault.value)


def test_tensors_have_the_batch_in_front_and_are_random_and_repeat():
    def made(shape, seed=0):
        return draw(shape, 5, CPU, torch.Generator().manual_seed(seed))

    images = made(Shape((3, 4)))
    assert (images.shape, images.dtype) == ((5, 3, 4), torch.float32)
    assert torch.equal(images, made(Shape((3, 4))))
    assert not torch.equal(images, made(Shape((3, 4)), seed=1))
    assert images.count_nonzero() == images.numel()
    tokens = made(Shape((200,), "int32", 7))
    assert (tokens.dtype, tokens.unique().tolist()) == (torch.int32, [0, 1, 2, 3, 4, 5, 6])
    bits = made(Shape((200,), "bool"))
    assert (bits.dtype, bits.unique().tolist()) == (torch.bool, [False, True])
    assert made(Shape((), "int64", 3)).shape == (5,)
    assert made(Shape((2,), "bfloat16")).dtype == torch.bfloat16


def net(directory: Path, text: str = "def build(): pass\n") -> str:
    (directory / "net.py").write_text(text)
    return f"{directory}/net.py:build"


def test_a_module_beside_the_file_counts_if_it_is_imported_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("SIZE = 1\n")
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks" / "__init__.py").write_text("from .layer import Layer\n")
    (tmp_path / "blocks" / "layer.py").write_text("import deep\n")
    (tmp_path / "unused.py").write_text("A = 1\n")
    text = net(tmp_path, "def build():\n    from blocks import Layer\n    return Layer()\n")
    first = model_digest(text)
    (tmp_path / "unused.py").write_text("A = 2\n")
    assert model_digest(text) == first
    (tmp_path / "deep.py").write_text("SIZE = 2\n")
    second = model_digest(text)
    assert second != first
    (tmp_path / "blocks" / "layer.py").write_text("import deep  # changed\n")
    assert model_digest(text) not in (first, second)


def test_configurations_have_one_and_names_of_libraries_none(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    in_directory, in_file = model_digest(f"hf:{tmp_path}"), model_digest(f"hf:{tmp_path}/config.json")
    assert in_directory == in_file != ""
    assert [model_digest(name) for name in ("resnet18", "timm:resnet10t", "hf:bert")] == ["", "", ""]


def test_a_module_that_is_imported_by_name_is_looked_up_without_running_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "digested_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('was run')\n")
    (package / "inner.py").write_text("def build(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    first = model_digest("digested_package.inner:build")
    assert first
    (package / "inner.py").write_text("def build(): return 1\n")
    assert model_digest("digested_package.inner:build") != first


def config(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "bert", **values}))
    return parse(f"hf:{path}")


@pytest.mark.parametrize(
    "values",
    [
        {"num_hidden_layers": 10_000_000},
        {"text_config": {"num_hidden_layers": 10_000_000}},
        {"n_layer": 20_001},
        {"depths": [10_000, 10_001]},
        {"layer_types": ["full_attention"] * 20_001},
        {"num_hidden_layers": 10_000, "num_local_experts": 10_000},
    ],
    ids=str,
)
def test_more_layers_than_the_limit_are_refused(tmp_path, values):
    with pytest.raises(ValueError, match=r"FLOPLEDGER_LIMITS=config_(layers|modules)=N raises the limit") as fault:
        read_config(config(tmp_path, **values))
    assert len(str(fault.value)) < 400


def test_a_large_or_endless_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "config.json"
    path.write_text("[" * 100_000)
    with pytest.raises(ValueError, match="expected JSON"):
        read_config(parse(f"hf:{path}"))
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "config_bytes=1000")
    with pytest.raises(ValueError, match="config_bytes=N"):
        read_config(parse(f"hf:{path}"))


KERNEL = "somebody/kernel"


@pytest.mark.parametrize(
    "values",
    [
        {"attn_implementation": KERNEL},
        {"_attn_implementation": KERNEL},
        {"_attn_implementation_internal": f"{KERNEL}:attention"},
        {"attn_implementation": {"": "sdpa", "text_config": KERNEL}},
        {"experts_implementation": KERNEL},
        {"text_config": {"_attn_implementation": KERNEL}},
        {"parts": [{"_attn_implementation": KERNEL}]},
        {"attn_implementation": "flash_attention_2"},
        {"attn_implementation": [KERNEL]},
    ],
    ids=str,
)
def test_a_kernel_of_the_hub_is_refused(tmp_path, values):
    """transformers would load it, and run its code, from the hub or from its cache."""
    with pytest.raises(ValueError, match=r"_implementation.*: expected one of eager, sdpa, .*, got ") as fault:
        read_config(config(tmp_path, **values))
    assert len(str(fault.value)) < 400
