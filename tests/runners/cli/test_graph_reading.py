"""Graph files that use up memory or kill their reader: the command ends with one line, and lives."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

from runners.cli import graph_reading
from runners.cli.exits import Mistake
from runners.cli.graph_reading import check_graphs

onnx = pytest.importorskip("onnx")


@pytest.fixture
def graph(tmp_path):
    """x + a constant of 40,000,000 elements (160 MB), which the file says in eight bytes."""
    from onnx import TensorProto, helper, numpy_helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    sizes = numpy_helper.from_array(np.array([10_000_000, 4], np.int64), "sizes")
    nodes = [helper.make_node("ConstantOfShape", ["sizes"], ["c"]), helper.make_node("Add", ["x", "c"], ["y"])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [sizes]), opset_imports=[helper.make_opsetid("", 17)]
    )
    made.ir_version = 8
    onnx.save(made, tmp_path / "net.onnx")
    return str(tmp_path / "net.onnx")


def test_what_fits_passes(graph, capsys):
    check_graphs([graph])
    assert capsys.readouterr().out == ""


def test_memory_ends_the_reader_and_not_the_command(graph, monkeypatch):
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "graph_bytes=100e6")
    with pytest.raises(Mistake, match=r"takes too much memory to read.*FLOPLEDGER_LIMITS=graph_bytes=N raises it"):
        check_graphs([graph])


def test_a_reader_that_does_not_end_is_killed(graph, monkeypatch):
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "graph_seconds=1")
    monkeypatch.setattr(graph_reading, "read", hang)
    with pytest.raises(Mistake, match=r"took too long to read.*graph_seconds=N raises it"):
        check_graphs([graph])


def test_a_reader_that_dies_is_told(graph, monkeypatch):
    monkeypatch.setattr(graph_reading, "read", die)
    with pytest.raises(Mistake, match="its reader died of SIGSEGV"):
        check_graphs([graph])


def test_what_else_is_wrong_is_left_to_the_command(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"nothing of a graph")
    check_graphs([str(tmp_path / "broken.onnx")])


def hang(*_arguments: object) -> None:
    signal.pause()


def die(*_arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
