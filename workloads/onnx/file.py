"""An ONNX file as a graph that can be built: its nodes, its initialisers, its inputs with their dimensions.

The package onnx reads the file; nothing in it is run. Functions that a file defines itself are put in their callers'
place. Sizes with a name have the default of `SIZES`, because ONNX files hold no example. What is refused: files that
are damaged, newer than the package knows, or that use an operator which is not in `workloads/onnx/operators.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import sympy
import torch

from results import shortened
from workloads.catalogue import require
from workloads.onnx.constants import KNOWN
from workloads.onnx.module import OnnxNet
from workloads.onnx.node import DTYPES, Known, OnnxNode
from workloads.onnx.operators import OPERATORS
from workloads.onnx.recurrent import LAYERS
from workloads.sources import UNKNOWN_BELOW, Graph, GraphInput, identifier
from workloads.training import fault_text

SIZES = (("seq", 128), ("len", 128), ("token", 128), ("height", 224), ("width", 224))
"""Part of a dimension's name → its default; others have OTHER_SIZE."""

OTHER_SIZE = 16

OLDEST = 7
"""The oldest version of ONNX's operators that is understood: before, broadcasting was an attribute."""

FOLLOWED = frozenset(
    ("Cast", "Identity", "Reshape", "Flatten", "Slice", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Concat")
)
"""Operators that hand whole numbers on as they are, on the way to the table that they look into."""


def read(path: str) -> Graph:
    """The graph in this file. Raises ValueError in one line that begins with the path, Unavailable without onnx."""
    require("onnx")
    model = _load(path)
    _check_names(path, model.graph)
    opset = _opset(path, model)
    initialisers = {each.name: _array(path, each) for each in model.graph.initializer}
    nodes = tuple(_node(path, place, each, opset) for place, each in enumerate(model.graph.node))
    for node in nodes:
        _check_known(path, node)
    inputs = tuple(
        _input(path, each, nodes, initialisers) for each in model.graph.input if each.name not in initialisers
    )
    outputs = tuple(each.name for each in model.graph.output)
    names = [each.name for each in model.graph.input if each.name not in initialisers]
    symbols = {
        str(s) for each in inputs for size in each.sizes if hasattr(size, "free_symbols") for s in size.free_symbols
    }
    return Graph(
        inputs,
        {name: default_size(name) for name in symbols},
        {},
        partial(_build, path, nodes, initialisers, names, outputs),
    )


def default_size(name: str) -> int:
    """What a dimension of this name is where nothing else is asked for."""
    return next((size for part, size in SIZES if part in name.lower()), OTHER_SIZE)


def _load(path: str) -> Any:
    import onnx

    try:
        model = onnx.load(path)
    except FileNotFoundError as fault:
        raise ValueError(f"{path}: weights outside of it are missing: {fault_text(fault)}") from fault
    except Exception as fault:
        raise ValueError(f"{path} is no ONNX file, or it is damaged: {fault_text(fault)}") from fault
    if not model.graph.node or not model.opset_import:
        raise ValueError(f"{path} is no ONNX file, or it is damaged: expected a graph with nodes; it has none")
    if model.functions:
        from onnx.inliner import inline_local_functions

        model = inline_local_functions(model)
    return model


def _opset(path: str, model: Any) -> int:
    import onnx

    version = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), OLDEST)
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= version <= newest:
        raise ValueError(f"{path} uses version {version} of ONNX's operators; expected {OLDEST} to {newest}")
    return int(version)


def _array(path: str, tensor: Any) -> Known:
    """An initialiser or a constant; a type that numpy has not, as float32 or refused."""
    from onnx import numpy_helper

    name = DTYPES.get(tensor.data_type)
    if name is None:
        raise ValueError(f"{path}: {tensor.name or 'a constant'} has ONNX type {tensor.data_type}, which is not known")
    try:
        array = numpy_helper.to_array(tensor)
    except Exception as fault:
        raise ValueError(f"{path}: {tensor.name or 'a constant'} cannot be read: {fault_text(fault)}") from fault
    return np.asarray(array.astype(np.float32) if name == "bfloat16" else array)


def _check_names(path: str, graph: Any) -> None:
    """Raises ValueError for a name that is no line of text: protobuf hands bytes that are not UTF-8 on as they are."""
    named = (*graph.node, *graph.initializer, *graph.input, *graph.output)
    names = [each.name for each in named] + [attribute.name for node in graph.node for attribute in node.attribute]
    for node in graph.node:
        names += [node.op_type, node.domain, *node.input, *node.output]
    for each in (*graph.input, *graph.output, *graph.value_info):
        names += [dimension.dim_param for dimension in each.type.tensor_type.shape.dim]
    for name in names:
        if isinstance(name, bytes):
            raise ValueError(f"{path}: expected names in UTF-8, got {shortened(repr(name), 60)}")
        if "\n" in name:
            raise ValueError(f"{path}: expected names of one line, got {shortened(repr(name), 60)}")


def _node(path: str, place: int, proto: Any, opset: int) -> OnnxNode:
    from onnx import helper

    known = proto.domain in ("", "ai.onnx")
    attributes = {each.name: _value(path, helper.get_attribute_value(each)) for each in proto.attribute}
    return OnnxNode(
        op=proto.op_type if known else f"{proto.domain}.{proto.op_type}",
        name=proto.name or f"{proto.op_type}_{place}",
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        opset=opset,
        attributes=attributes,
    )


def _value(path: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if hasattr(value, "data_type"):
        return _array(path, value)
    if isinstance(value, (int, float)):
        return value
    return [_value(path, each) for each in value] if isinstance(value, Iterable) else value


def _check_known(path: str, node: OnnxNode) -> None:
    names = {*OPERATORS, *KNOWN, *LAYERS, "Constant"}
    if node.op not in names:
        near = difflib.get_close_matches(node.op, names, n=1, cutoff=0.8)
        hint = f"; nearest: {near[0]}" if near else ""
        raise ValueError(f"{path}: ONNX operator {node.op} (node {node.name!r}) is not known{hint}")


def _input(path: str, proto: Any, nodes: Iterable[OnnxNode], initialisers: Mapping[str, Known]) -> GraphInput:
    tensor = proto.type.tensor_type
    if not proto.type.HasField("tensor_type") or tensor.elem_type not in DTYPES:
        raise ValueError(f"{path}: input {proto.name} is no tensor of a type that is known")
    if not tensor.HasField("shape"):
        raise ValueError(f"{path}: input {proto.name} says nothing of its shape")
    name = identifier(proto.name)
    sizes = tuple(
        sympy.Integer(each.dim_value)
        if each.HasField("dim_value") and each.dim_value > 0
        else sympy.Symbol(identifier(each.dim_param or f"{name}_{axis}"), integer=True, positive=True)
        for axis, each in enumerate(tensor.shape.dim)
    )
    return GraphInput(name, sizes, DTYPES[tensor.elem_type], _below(proto.name, nodes, initialisers))


def _below(name: str, nodes: Iterable[OnnxNode], initialisers: Mapping[str, Known]) -> int:
    """Rows of the smallest table that this input looks into, followed through what does not change numbers."""
    handed, rows = {name}, []
    for node in nodes:
        if node.op == "Gather" and node.inputs[1] in handed and node.inputs[0] in initialisers:
            rows.append(int(initialisers[node.inputs[0]].shape[node.get("axis", 0)]))
        elif node.op in FOLLOWED and handed & set(node.inputs):
            handed |= set(node.outputs)
    return max(min(rows, default=UNKNOWN_BELOW), 1)


def _build(
    path: str,
    nodes: tuple[OnnxNode, ...],
    initialisers: Mapping[str, Known],
    inputs: list[str],
    outputs: tuple[str, ...],
    device: torch.device,
) -> torch.nn.Module:
    try:
        return OnnxNet(nodes, initialisers, inputs, outputs).to(device)
    except ValueError as fault:
        raise ValueError(f"{path}: {fault}") from fault
