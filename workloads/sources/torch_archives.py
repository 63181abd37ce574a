"""What is looked at in a .pt2 archive before PyTorch opens it, and how it is opened: as data, not as a program.

`torch.export.load` falls back to an unpickler that runs what it finds, loads compiled libraries, evaluates sizes with
sympy, which evaluates Python, and imports the modules that a tree spec names. It finds members whatever their case. So:
members have exact names (`MEMBERS`) in one folder, each once when case is folded, not compressed, and the same to
Python's reader and PyTorch's; pickles are read as weights alone; each JSON that PyTorch parses is checked; sizes may
hold numbers, symbols and the functions of `FUNCTIONS`, with small powers; tree specs are made of `TREES`; and every
operation of the graph has to be one that calculates (`is_operation`), since some of PyTorch's write files. Not
claimed: that a reader of C++ in PyTorch has no fault; a graph of real operations can still ask for all memory.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._export.serde.schema import SCHEMA_VERSION
from torch._ops import HigherOrderOperator, OpOverload
from torch.export.pt2_archive.constants import ARCHIVE_VERSION_VALUE

from results import beyond, limit

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
_TEXT = re.compile(r"[a-z]{1,4}\d{1,9}|-?\d{1,40}(?:\.\d{0,40})?(?:e[+-]?\d{1,3})?")
_TEXT_FUNCTIONS = ("Symbol", "Integer", "Float", "Rational")
"""Functions that take a text."""
_POWERS = ("Pow", "PowByNatural", "FloatPow", "LShift")
_COMPARING = ("Max", "Min")
LARGEST_POWER = 64
"""Exponents and shifts in a size; sympy calculates powers of numbers at once."""
LARGEST_NUMBER = 2**64
LONGEST = 10_000
"""Characters of a size; Python's parser takes long on what is nested deeply."""

COMPILED = ("/aotinductor/", "/executorch/")
"""Folders of an archive that hold code."""

OBJECTS = ("custom_obj", "opaque")
"""How files of constants begin that are objects and no tensors."""

MODEL, WEIGHTS, CONSTANTS = "models/model.json", "data/weights/", "data/constants/"
CONFIGS = {
    WEIGHTS + "model_weights_config.json": (WEIGHTS, re.compile(r"weight_[0-9]{1,9}")),
    CONSTANTS + "model_constants_config.json": (CONSTANTS, re.compile(r"tensor_[0-9]{1,9}")),
}
"""Lists of tensors → their folder and the names of the files in it."""

MEMBERS = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/(?:version|serialization_id)"
    r"|models/model\.json|data/sample_inputs/model\.pt|extra/[A-Za-z0-9_.-]{1,200}"
    r"|data/weights/(?:weight_[0-9]{1,9}|model_weights_config\.json)"
    r"|data/constants/(?:tensor_[0-9]{1,9}|model_constants_config\.json)"
)
"""What torch.export.save writes for one program of tensors, below the archive's folder."""

TREES = (None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict", "collections.deque")
"""Containers that inputs and outputs may be nested in. Others look for classes, and import modules to do so."""

NAMESPACES = ("aten", "prims", "torchvision", "quantized", "quantized_decomposed", "mkldnn")
"""Libraries of operations that calculate. Others send, receive, decode or write files."""

OF_FILES = ("from_file", "save", "_print", "warn")
"""Operations of these libraries that open a file, or print: `aten.from_file` writes where its text says."""

HIGHER_ORDER = (
    "associative_scan", "auto_functionalized", "auto_functionalized_v2", "cond", "flex_attention",
    "flex_attention_backward", "hints_wrapper", "invoke_subgraph", "map_impl", "out_dtype", "scan", "strict_mode",
    "switch", "tag_activation_checkpoint", "while_loop", "wrap", "wrap_activation_checkpoint", "wrap_with_autocast",
    "wrap_with_set_grad_enabled",
)  # fmt: skip
"""Operations that run graphs of the program. Others run compiled code, objects or what the program prints."""

_OF_NUMBERS = re.compile(r"(?:_operator|math)\.[a-z_]+|torch\._?sym_[a-z_]+")
"""Functions that calculate sizes, as a program names them."""


def check(path: str) -> None:
    """Raises ValueError, in one line that begins with the path, for what is no archive of an exported program, and
    for one that holds more than graphs and tensors."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
        lengths = _check_members(path, members)
        reader = torch._C.PyTorchFileReader(path)
        if sorted(reader.get_all_records()) != sorted(lengths):
            raise ValueError(f"{path} holds other files for PyTorch's reader than for Python's")
        if reader.get_record("archive_version").decode() != ARCHIVE_VERSION_VALUE:
            raise ValueError(f"{path} has another version of archives than {ARCHIVE_VERSION_VALUE}")
        document = _parse(path, reader.get_record(MODEL))
        _check_version(path, document)
        _check_document(path, document)
        for name in CONFIGS:
            _check_tensors(path, name, _parse(path, reader.get_record(name)), lengths)
    except (zipfile.BadZipFile, EOFError, json.JSONDecodeError, UnicodeDecodeError, RuntimeError) as fault:
        # NotImplementedError and RecursionError are RuntimeErrors
        cause = str(fault).partition("\n")[0]
        raise ValueError(f"{path} is no exported program, or it is damaged: {type(fault).__name__}: {cause}") from fault


def _parse(path: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError as fault:  # also a number of more digits than Python reads
        raise ValueError(f"{path} is no exported program, or it is damaged: {type(fault).__name__}: {fault}") from fault


def _check_members(path: str, members: Sequence[zipfile.ZipInfo]) -> dict[str, int]:
    """Names below the archive's folder → bytes. The folder is that of the first member, as for PyTorch."""
    root = members[0].filename.partition("/")[0] + "/" if members else "/"
    names = [member.filename.removeprefix(root) for member in members]
    if MODEL not in names or "archive_version" not in names or any(name not in names for name in CONFIGS):
        _refuse_known(path, names)
        raise ValueError(f"{path} holds no exported program: expected what torch.export.save writes (torch 2.11 on)")
    _refuse_known(path, names)
    for member, name in zip(members, names, strict=True):
        if not member.filename.startswith(root) or member.orig_filename != member.filename:
            raise ValueError(f"{path} holds {member.orig_filename[:80]!r} outside of its folder")
        if not MEMBERS.fullmatch(name):
            raise ValueError(f"{path} holds {name[:80]!r}, which is no part of an exported program of tensors")
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ValueError(f"{path} holds {name!r} compressed, which torch.export.save does not do")
    twice = [name for name, count in Counter(name.casefold() for name in names).items() if count > 1]
    if twice:
        raise ValueError(f"{path} holds {twice[0]!r} more than once")
    if sum(member.file_size for member in members) > os.path.getsize(path):
        raise ValueError(f"{path} holds files that overlap")
    return {name: member.file_size for member, name in zip(members, names, strict=True)}


def _refuse_known(path: str, names: Sequence[str]) -> None:
    """Names that PyTorch runs or unpickles, by their prefix as it reads them, in any case."""
    for name in names:
        folded = f"/{name.casefold()}"
        if any(folder in folded for folder in COMPILED):
            raise ValueError(f"{path} holds compiled code ({name[:80]!r}), which is not run here")
        if any(f"/constants/{prefix}" in folded for prefix in OBJECTS):
            raise ValueError(f"{path} holds a pickled object ({name[:80]!r}), which is not loaded: only tensors are")


def _check_tensors(path: str, name: str, document: Any, lengths: dict[str, int]) -> None:
    """A list of tensors: each in a file of its folder, not pickled, and of no size but that of its bytes."""
    folder, expected = CONFIGS[name]
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise ValueError(f"{path}: {name} is no list of tensors")
    for key, entry in config.items():
        file = entry.get("path_name") if isinstance(entry, dict) else None
        if not isinstance(file, str) or not expected.fullmatch(file) or entry.get("use_pickle") is not False:
            raise ValueError(f"{path} says that {key[:80]!r} is an object, which is not loaded: only weights are")
        meta = entry.get("tensor_meta")
        sizes = meta.get("sizes") if isinstance(meta, dict) else None
        whole: list[Any] = (
            [size.get("as_int") for size in sizes if isinstance(size, dict)] if isinstance(sizes, list) else [None]
        )
        if not all(type(size) is int and size >= 0 for size in whole) or len(whole) != len(sizes or ()):
            raise ValueError(f"{path}: {key[:80]!r} has no sizes in whole numbers")
        if lengths.get(folder + file) == 0 and math.prod(whole):
            raise ValueError(f"{path}: {key[:80]!r} has {math.prod(whole)} elements and no bytes")
    _check_document(path, document)


def _check_version(path: str, document: Any) -> None:
    """torch.export.load tells of another version in its log alone."""
    stated = document.get("schema_version") if isinstance(document, dict) else None
    version = stated.get("major") if isinstance(stated, dict) else None
    if version != SCHEMA_VERSION[0]:
        raise ValueError(
            f"{path} has version {version} of the format of exported programs; torch {torch.__version__} reads "
            f"version {SCHEMA_VERSION[0]}"
        )


def _check_document(path: str, node: Any) -> None:
    """Every size and every tree spec of a JSON document, wherever it stands."""
    waiting = [node]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            text = here.get("expr_str")
            if text is not None and not is_size(text):
                raise ValueError(f"{path} holds a size that is none: {str(text)[:80]!r}")
            many = 0 if text is None else compared_arguments(text)
            if many > limit("size_arguments"):
                raise ValueError(beyond(f"{path} holds a size of {many} arguments of maxima", "size_arguments"))
            for name in _operations(here):
                if not is_operation(name):
                    raise ValueError(f"{path} calls {str(name)[:80]!r}, which is no operation that is known here")
            for key in ("in_spec", "out_spec"):
                if here.get(key) is not None and not is_tree(here[key]):
                    raise ValueError(f"{path} nests inputs or outputs in more than tuples, lists and dictionaries")
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here


def _operations(node: dict[str, Any]) -> Iterator[Any]:
    """Names of operations in a dictionary of the document: of a graph's nodes, and of one that is an argument."""
    nodes = node.get("nodes")
    for one in nodes if isinstance(nodes, list) else ():
        yield one.get("target") if isinstance(one, dict) else one
    if node.get("as_operator") is not None:
        yield node["as_operator"]


def is_operation(name: Any) -> bool:
    """Whether a name is that of an operation that calculates: `torch.ops.aten.add.Tensor`, `_operator.mul`."""
    if not isinstance(name, str):
        return False
    words = name.split(".")
    if words[:2] != ["torch", "ops"]:
        return bool(_OF_NUMBERS.fullmatch(name))
    if words[2:3] == ["higher_order"]:
        return len(words) == 4 and words[3] in HIGHER_ORDER
    return len(words) in (4, 5) and words[2] in NAMESPACES and words[3] not in OF_FILES and words[3].isidentifier()


def is_tree(text: Any) -> bool:
    """Whether a text is a tree spec, as torch.utils._pytree writes it, of `TREES` alone and with plain keys."""
    if text == "":
        return True
    try:
        protocol, root = json.loads(text)
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if set(node) != {"type", "context", "children_spec"} or node["type"] not in TREES:
                return False
            if not _is_plain_context(node["context"]):
                return False
            waiting += node["children_spec"]
    except (TypeError, ValueError, RecursionError):
        return False
    return bool(protocol == 1)


def _is_plain_context(context: Any) -> bool:
    """Null, a number, or JSON of names and numbers in lists: an object in it may be an enumeration to import."""
    values = [json.loads(context)] if isinstance(context, str) else [context]
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        elif isinstance(value, dict):
            return False
    return True


def is_size(text: Any) -> bool:
    """Whether a text is made of numbers, symbols, operators and the functions that sizes have, and is quick to
    evaluate: no text or tuple is repeated by an operator, and no power is large or inside another."""
    if not isinstance(text, str) or len(text) > LONGEST:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
        nodes = list(ast.walk(tree))
        return all(isinstance(node, _PARTS) and _is_plain(node) for node in nodes) and _are_apart(nodes)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def compared_arguments(size: str) -> int:
    """How many arguments all maxima and minima of a size have; sympy compares each with each other one of its call."""
    calls = [node for node in ast.walk(ast.parse(size.strip(), mode="eval")) if isinstance(node, ast.Call)]
    return sum(len(call.args) for call in calls if isinstance(call.func, ast.Name) and call.func.id in _COMPARING)


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id in FUNCTIONS or bool(_SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(_TEXT.fullmatch(node.value))
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (bool, float)) or (isinstance(node.value, int) and node.value <= LARGEST_NUMBER)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Float":
        extra = [*node.args[1:], *(keyword.value for keyword in node.keywords)]  # digits: memory and time
        return all(isinstance(one, ast.Constant) and type(one.value) is int and one.value <= 64 for one in extra)
    return not isinstance(node, ast.Call) or isinstance(node.func, ast.Name)


def _are_apart(nodes: Sequence[ast.AST]) -> bool:
    """Texts are the first argument of `_TEXT_FUNCTIONS`, tuples are arguments of Piecewise, powers are not nested."""
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    named = {id(call.args[0]) for call in calls if call.args and call.func.id in _TEXT_FUNCTIONS}  # type: ignore[attr-defined]
    pieces = {id(one) for call in calls if call.func.id == "Piecewise" for one in call.args}  # type: ignore[attr-defined]
    texts = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    tuples = [node for node in nodes if isinstance(node, ast.Tuple)]
    powers = [node for node in nodes if _power(node) is not None]
    return (
        all(id(node) in named for node in texts)
        and all(id(node) in pieces for node in tuples)
        and all(_is_small(node) for node in powers)
    )


def _power(node: ast.AST) -> list[ast.expr] | None:
    """Base and exponent of a power or a shift to the left."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        return [node.left, node.right]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _POWERS:
        return list(node.args)
    return None


def _is_small(node: ast.AST) -> bool:
    operands = _power(node) or []
    if len(operands) < 2 or any(_power(inner) is not None for one in operands for inner in ast.walk(one)):
        return False
    numbers = [inner.value for inner in ast.walk(operands[1]) if isinstance(inner, ast.Constant)]
    exponent = operands[1].operand if isinstance(operands[1], ast.UnaryOp) else operands[1]
    plain = isinstance(exponent, (ast.Constant, ast.Name)) or (
        isinstance(exponent, ast.Call) and isinstance(exponent.func, ast.Name) and exponent.func.id in _TEXT_FUNCTIONS
    )
    return plain and all(_size_of(number) <= LARGEST_POWER for number in numbers)


def _size_of(number: Any) -> float:
    try:
        return abs(float(number))
    except ValueError:
        return 0.0  # the name of a symbol


def check_operations(path: str, graph: torch.fx.GraphModule) -> None:
    """Raises ValueError for a graph that calls what `is_operation` refuses, in it or in a graph inside."""
    for module in graph.modules():
        nodes = module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ()
        for node in nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            if node.op != "call_function" or not is_operation(_name_of(node.target)):
                raise ValueError(f"{path} calls {node.target}, which is no operation that is known here")


def _name_of(target: Any) -> str:
    """The name of what a node calls, as a program's file has it."""
    if isinstance(target, OpOverload):
        return f"torch.ops.{target}"
    if isinstance(target, HigherOrderOperator):
        return f"torch.ops.higher_order.{target.name()}"
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', '')}"


@contextlib.contextmanager
def only_weights() -> Iterator[None]:
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
