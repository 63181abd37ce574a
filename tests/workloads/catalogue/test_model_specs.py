"""Definition, injected fault: the five forms of a model, and mistakes that are refused before anything is built."""

import json
import os

import pytest

from results.errors import Unavailable
from workloads.catalogue import model_names
from workloads.catalogue.model_names import INSTALL, Spec, check, parse


@pytest.mark.parametrize(
    ("text", "form", "target", "function"),
    [
        ("resnet18", "catalogue", "resnet18", ""),
        ("timm:vit_small_patch16_224.augreg_in1k", "timm", "vit_small_patch16_224.augreg_in1k", ""),
        ("hf:configs/bert.json", "hf", "configs/bert.json", ""),
        ("hf:bert", "hf", "bert", ""),
        ("package.module:build", "module", "package.module", "build"),
        ("net.py:build", "file", "net.py", "build"),
        ("../my nets/net.py:Net", "file", "../my nets/net.py", "Net"),
    ],
)
def test_forms(text, form, target, function):
    assert parse(text) == Spec(text, form, target, function)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("timm:", "names no model: expected timm:NAME"),
        ("hf:", "expected hf:CONFIG"),
        ("net.py", "names no function: expected net.py:function"),
        ("net.py:", "names no function"),
        ("net.py:a b", "names no function"),
        (":build", "names no function"),
        ("not-a-module:build", "is no model: expected a name of the catalogue, timm:NAME, hf:CONFIG"),
        ("package.module.build", "is no model: expected a name of the catalogue"),
        ("google/vit", "is no model"),
        ("resnet5O", "unknown model 'resnet5O'; nearest: resnet50"),
        ("jsn:dumps", "there is no module 'jsn'"),
        ("tim:vit_b", "there is no module 'tim'; nearest: timm"),
        ("colorsys:rgb_to_hls_", "colorsys has no 'rgb_to_hls_'; nearest: rgb_to_hls"),
        ("nowhere/model.pt2", "'nowhere/model.pt2' is no model: expected a name of the catalogue"),
        ("model.onnx", "'model.onnx' is no model: expected a name of the catalogue"),
        ("hf:nowhere/config.json", "there is no file nowhere/config.json"),
    ],
)
def test_mistakes_are_one_line(text, said):
    with pytest.raises(ValueError, match=r".") as fault:
        check(text)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("form", ["{}/m.py:build", "hf:{}/m.json"])
def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path, form):
    text = form.format(tmp_path)
    os.mkfifo(text.removeprefix("hf:").removesuffix(":build"))
    with pytest.raises(ValueError, match=r"/m\.\w+ is not a regular file$"):
        check(text)


def test_files_are_read_and_not_run(tmp_path):
    net = tmp_path / "net.py"
    net.write_text(
        "raise SystemExit('it ran')\n"
        "if True:\n    def build(): ...\n"
        "try:\n    from torch import nn as layers\nexcept ImportError:\n    layers = None\n"
        "one, two = 1, 2\n"
        "class Net: ...\n"
    )
    for name in ("build", "layers", "one", "two", "Net"):
        assert check(f"{net}:{name}").function == name
    with pytest.raises(ValueError, match="has no 'biuld'; nearest: build"):
        check(f"{net}:biuld")
    with pytest.raises(ValueError, match=r"there is no file .*nte.py; nearest: net.py"):
        check(f"{tmp_path}/nte.py:build")
    with pytest.raises(ValueError, match="there is no file"):
        check("nowhere/at/all.py:build")
    net.write_text("from torch.nn import *\n")
    assert check(f"{net}:Whatever").form == "file"
    net.write_text("def build(:\n")
    with pytest.raises(ValueError, match=r"net.py is no Python: invalid syntax"):
        check(f"{net}:build")


def test_configs_are_read(tmp_path):
    config = tmp_path / "config.json"
    for text, said in (
        ("{", "expected JSON, got"),
        ("[]", "expected an object with model_type or architectures"),
        ('{"hidden_size": 8}', "it has neither"),
    ):
        config.write_text(text)
        with pytest.raises(ValueError, match="hf:") as fault:
            check(f"hf:{config}")
        assert said in str(fault.value)
    config.write_text(json.dumps({"model_type": "x", "auto_map": {"AutoModel": "x--y.Z"}}))
    with pytest.raises(Unavailable, match="its code is on the hub"):
        check(f"hf:{config}")
    config.write_text(json.dumps({"model_type": "bert"}))
    assert check(f"hf:{tmp_path}") == check(f"hf:{tmp_path}")
    with pytest.raises(ValueError, match=r"a directory that holds config.json; there is none"):
        check(f"hf:{tmp_path.parent}")


@pytest.mark.parametrize(("text", "package"), [("timm:resnet18", "timm"), ("hf:bert", "transformers")])
def test_a_missing_package_is_a_line_to_type(monkeypatch, text, package):
    monkeypatch.setattr(model_names.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(Unavailable) as fault:
        check(text)
    assert str(fault.value) == f"{package} is not installed: python -m pip install '{INSTALL[package]}'"


def test_a_hub_id_is_refused_without_asking_the_hub():
    with pytest.raises(Unavailable, match=r"google/vit.*give config.json: nothing is downloaded"):
        check("hf:google/vit-base-patch16-224")


def test_a_file_stands_for_its_only_module(tmp_path):
    file = tmp_path / "net.py"
    file.write_text("from torch import nn\n\n\nclass Size:\n    pass\n\n\nclass Net(nn.Module):\n    pass\n")
    assert parse(str(file)) == parse(f"{file}:Net")
    file.write_text(file.read_text() + "\n\nclass Other(nn.Module):\n    pass\n")
    with pytest.raises(ValueError, match=r"names no function: expected .*net\.py:Net"):
        parse(str(file))
