"""What is looked at in a .pt2 archive before PyTorch opens it, and how it is opened: as data, not as a program.

`torch.export.load` falls back to an unpickler that runs what it finds, loads compiled libraries, and evaluates sizes
with sympy, which evaluates Python. So: archives with compiled code or pickled objects are refused, pickles are read as
weights alone, sizes may hold numbers, symbols and the functions of `FUNCTIONS`, and every operation of the graph has to
be one of PyTorch's. Not claimed: that a reader of C++ in PyTorch has no fault; a graph of real operations can still
ask for all memory.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._export.serde.schema import SCHEMA_VERSION
from torch._ops import HigherOrderOperator, OpOverload

FUNCTIONS = frozenset((
    "Abs", "Add", "And", "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "False", "Float", "FloatPow",
    "FloatTrueDiv", "FloorDiv", "FloorToInt", "Ge", "GreaterThan", "Gt", "IntTrueDiv", "Integer", "LShift", "Le",
    "LessThan", "Lt", "Max", "Min", "Mod", "ModularIndexing", "Mul", "Ne", "Not", "Or", "Piecewise", "Pow",
    "PowByNatural", "PythonMod", "RShift", "Rational", "RoundToInt", "StrictGreaterThan", "StrictLessThan",
    "Symbol", "ToFloat", "True", "TruncToFloat", "TruncToInt", "Unequality", "Where", "ceiling", "floor", "int_oo",
    "oo", "sqrt",
))  # fmt: skip
"""Names that a size may hold beside symbols."""

_PARTS = (
    ast.Expression, ast.Call, ast.Name, ast.Constant, ast.keyword, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare,
    ast.Tuple, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
"""What a size may be made of, as Python reads it: no attribute, no index, no text but the name of a symbol."""

_SYMBOL = re.compile(r"[a-z]{1,4}\d+")
_TEXT = re.compile(r"[a-z]{1,4}\d+|-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")
LONGEST = 10_000
"""Characters of a size; Python's parser takes long on what is nested deeply."""

COMPILED = ("/aotinductor/", "/executorch/")
"""Folders of an archive that hold code."""

OBJECTS = ("custom_obj", "opaque")
"""How files of constants begin that are objects and no tensors."""

PLAIN_MODULES = ("_operator", "math")
"""Modules beside torch's own operations whose functions a graph may call."""


def check(path: str) -> None:
    """Raises ValueError, in one line that begins with the path, for what is no archive of an exported program, and
    for one that holds more than graphs and tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            _check_names(path, names)
            for name in names:
                if "/models/" in f"/{name}" and name.endswith(".json"):
                    document = json.loads(archive.read(name))
                    _check_version(path, document)
                    _check_sizes(path, document)
    except (zipfile.BadZipFile, EOFError, json.JSONDecodeError, UnicodeDecodeError, NotImplementedError) as fault:
        raise ValueError(f"{path} is no exported program, or it is damaged: {type(fault).__name__}: {fault}") from fault


def _check_names(path: str, names: Iterable[str]) -> None:
    rooted = [f"/{name}" for name in names]
    if not any("/models/" in name and name.endswith(".json") for name in rooted):
        raise ValueError(f"{path} holds no exported program: expected what torch.export.save wrote (since torch 2.9)")
    for name in rooted:
        if any(folder in name for folder in COMPILED):
            raise ValueError(f"{path} holds compiled code ({name[1:]}), which is not run here")
        if "/constants/" in name and name.rpartition("/")[2].startswith(OBJECTS):
            raise ValueError(f"{path} holds a pickled object ({name[1:]}), which is not loaded: only tensors are")


def _check_version(path: str, document: Any) -> None:
    """torch.export.load tells of another version in its log alone."""
    version = document.get("schema_version", {}).get("major") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION[0]:
        raise ValueError(
            f"{path} has version {version} of the format of exported programs; torch {torch.__version__} reads "
            f"version {SCHEMA_VERSION[0]}"
        )


def _check_sizes(path: str, node: Any) -> None:
    """Every size in a graph, wherever it stands."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            text = here.get("expr_str")
            if text is not None and not is_size(text):
                raise ValueError(f"{path} holds a size that is none: {str(text)[:80]!r}")
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here


def is_size(text: Any) -> bool:
    """Whether a text is made of numbers, symbols, operators and the functions that sizes have."""
    if not isinstance(text, str) or len(text) > LONGEST:
        return False
    try:
        nodes = list(ast.walk(ast.parse(text.strip(), mode="eval")))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(isinstance(node, _PARTS) and _is_plain(node) for node in nodes)


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in FUNCTIONS or bool(_SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(_TEXT.fullmatch(node.value))
    return not isinstance(node, ast.Call) or isinstance(node.func, ast.Name)


def check_operations(path: str, graph: torch.fx.GraphModule) -> None:
    """Raises ValueError for a graph that calls what is no operation of PyTorch's, in it or in a graph inside."""
    for module in graph.modules():
        nodes = module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()
        for node in nodes:
            target = node.target
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            plain = getattr(target, "__module__", "") in PLAIN_MODULES or getattr(target, "__name__", "").startswith(
                "sym_"
            )
            if node.op != "call_function" or not (plain or isinstance(target, (OpOverload, HigherOrderOperator))):
                raise ValueError(f"{path} calls {target}, which is no operation that is known here")


@contextlib.contextmanager
def weights_alone() -> Iterator[None]:
    """Inside, torch.load reads tensors and plain values and refuses everything else, whoever calls it."""
    forced, allowed = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.get(name) for name in (forced, allowed)}
    os.environ[forced] = "1"
    os.environ.pop(allowed, None)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
