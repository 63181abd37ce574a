"""The checksum of a model's files: what changes it, what does not, and which models have none."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from workloads.catalogue.files import model_digest


def net(directory: Path, text: str = "def build(): pass\n") -> str:
    (directory / "net.py").write_text(text)
    return f"{directory}/net.py:build"


def test_the_digest_is_of_name_length_and_content(tmp_path: Path) -> None:
    content = b"def build(): pass\n"
    expected = hashlib.sha256(b"net.py 18\n" + content).hexdigest()[:16]
    assert model_digest(net(tmp_path)) == expected
    assert model_digest(net(tmp_path).replace(":build", ":other")) == expected, "of the file, not of the function"


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


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        model_digest(f"{tmp_path}/net.py:build")


def test_a_module_that_is_not_there_has_no_digest() -> None:
    assert model_digest("no_such_package.inner:build") == ""
