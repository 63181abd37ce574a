"""Graphs and configurations that use up memory or kill their reader: the command ends with one line, and lives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np
import psutil
import pytest

from runners.cli import graph_reading
from runners.cli.exits import Mistake
from runners.cli.graph_reading import check_files
from runners.cli.model_options import check_models

ROOT = Path(__file__).parents[3]

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
    check_files([graph])
    assert capsys.readouterr().out == ""


def test_memory_ends_the_reader_and_not_the_command(graph, monkeypatch):
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "graph_bytes=100e6")
    with pytest.raises(Mistake, match=r"takes too much memory to read.*FLOPLEDGER_LIMITS=graph_bytes=N raises it"):
        check_files([graph])


def test_a_reader_that_does_not_end_is_killed(graph, monkeypatch):
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "graph_seconds=1")
    monkeypatch.setattr(graph_reading, "read", hang)
    with pytest.raises(Mistake, match=r"took too long to read.*graph_seconds=N raises it"):
        check_files([graph])


def test_a_reader_that_dies_is_told(graph, monkeypatch):
    monkeypatch.setattr(graph_reading, "read", die)
    with pytest.raises(Mistake, match="its reader died of SIGSEGV"):
        check_files([graph])


def test_what_else_is_wrong_is_left_to_the_command(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"nothing of a graph")
    check_files([str(tmp_path / "broken.onnx")])


def hang(*_arguments: object) -> None:
    signal.pause()


def die(*_arguments: object) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def configuration(folder, layers):
    small = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": "bert", "num_hidden_layers": layers, **small}))
    return f"hf:{path}"


def test_graphs_and_configurations_in_files_are_read_apart_and_nothing_else(tmp_path, graph, monkeypatch):
    pytest.importorskip("transformers")
    read = []
    monkeypatch.setattr(graph_reading, "check_files", read.extend)
    config = configuration(tmp_path, 2)
    check_models([graph, "resnet18", "hf:bert", config], Namespace(hyper=None, batch="", input=""))
    assert read == [graph, config]


@pytest.mark.slow
def test_a_configuration_of_many_layers_ends_its_reader_alone(tmp_path, monkeypatch):
    """20,000 layers, as many as the limit of their number allows, take more than 600 MB."""
    pytest.importorskip("transformers")
    monkeypatch.setenv("FLOPLEDGER_LIMITS", "graph_bytes=600e6")
    check_files([configuration(tmp_path, 2)])
    with pytest.raises(Mistake, match=r"takes too much memory to read.*graph_bytes=N raises it"):
        check_files([configuration(tmp_path, 20_000)])


@pytest.mark.slow
def test_no_reader_of_a_configuration_outlives_its_command(tmp_path):
    """The command is killed while a process of its own builds the layers, which would take a minute."""
    pytest.importorskip("transformers")
    words = [sys.executable, "-m", "runners.count", configuration(tmp_path, 20_000)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as command:
        family = wait_for_reader(psutil.Process(command.pid))
        command.kill()
    gone, alive = psutil.wait_procs(family, timeout=20)
    assert alive == []
    assert len(gone) >= 2, "the server and the reader"


def wait_for_reader(command):
    """The command's processes, once one of the server's has used five seconds."""
    end_s = time.monotonic() + 120
    while time.monotonic() < end_s:
        family = command.children(recursive=True)
        busy = [one for one in family if one.parent() != command and one.cpu_times().user > 5]
        if busy:
            return family
        time.sleep(0.1)
    raise AssertionError("no reader began")


@pytest.mark.parametrize(
    ("code", "words"),
    [(-9, "died of SIGKILL"), (1, "ended with status 1"), (None, "ended with status None"), (-24, "took too long")],
)
def test_how_a_reader_ended(code, words):
    assert words in graph_reading._died("net.onnx", code)
