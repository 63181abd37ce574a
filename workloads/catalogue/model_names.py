"""Parses what a person types for a model and for its inputs, and checks it without torch.

`check` takes a model's name and returns its parts as a `Spec`. `parse_shapes` takes the text of `--input` and returns
`Shape`s. `model_digest` returns a checksum of the files that a model is made of, and `directory_of` the directory of
`--data`. This module reads sources and configurations and runs none of them, so that it answers in milliseconds. What
passes may still fail to build. Only timm and transformers know the names of their models and types, and check them when
they build.
"""

import ast
import contextlib
import hashlib
import importlib.util
import json
import re
import symtable
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from results import text_files
from results.errors import Unavailable
from results.text_files import beyond, check_regular, limit
from workloads.catalogue.catalogue import ENTRIES, check_name

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool")

GRAMMAR = (
    "[NAME=]SIZExSIZE…[:DTYPE[:BELOW]], several with commas, such as 3x224x224 or 128:int64:30522, with a DTYPE of "
    f"{', '.join(DTYPES)}, and BELOW, 2 or more, for int64 and int32 only"
)


@dataclass(frozen=True)
class Shape:
    """One input without its batch dimension. below: exclusive upper bound of integer inputs; 0 for other dtypes."""

    sizes: tuple[int, ...]
    dtype: str = "float32"
    below: int = 0
    name: str = ""


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """Return the inputs in order, those without a name first. Raises ValueError in one line that shows the grammar.

    3x224x224                      one float32 tensor per sample; the batch dimension comes in front
    128:int64:30522                128 whole numbers from 0 to 30521: token ids
    :int64:10                      one whole number per sample
    3x224x224,128:int64:1000       two inputs
    pixel_values=3x32x32           an input by its name in forward(…)
    """
    shapes = tuple(_shape(part.strip(), text) for part in text.split(","))
    names = [shape.name for shape in shapes]
    if sorted(names, key=bool) != names:
        raise ValueError(f"--input {text!r}: an input without a name comes after one with a name")
    named = [name for name in names if name]
    if len(set(named)) != len(named):
        raise ValueError(f"--input {text!r}: expected each name once, got {', '.join(named)}")
    return shapes


_INPUT = re.compile(r"(?:([^\W\d]\w*)=)?([1-9][0-9]*(?:x[1-9][0-9]*)*)?(?::(\w+)(?::([0-9]+))?)?", re.ASCII)


def _shape(part: str, text: str) -> Shape:
    match = _INPUT.fullmatch(part)
    name, sizes, dtype, below = match.groups(default="") if match is not None else ("", "", "", "")
    dtype = dtype or "float32"
    bounded = int(below or 0) >= 2 if dtype.startswith("int") else not below
    if match is None or not part.rpartition("=")[2] or dtype not in DTYPES or not bounded:
        raise ValueError(f"--input {text!r}: expected {GRAMMAR}; got {part!r}")
    return Shape(tuple(map(int, filter(None, sizes.split("x")))), dtype, int(below or 0), name)


INSTALL = {"timm": "timm>=1.0.31,<2", "transformers": "transformers>=5.23,<6"}
"""Package → its requirement, as in requirements-models.txt (a test compares them)."""

PACKAGES = {"timm": "timm", "hf": "transformers"}
"""Prefix → the package it needs."""

CODE = ("module", "file")
"""Forms whose building runs a person's own code."""

FORMS = "a name of the catalogue, timm:NAME, hf:CONFIG, module:function or file.py:function"


@dataclass(frozen=True)
class Spec:
    """A model as it was asked for, in one of five forms.

    resnet18                       catalogue: of torchvision, text, speech or Fathom, or synthetic
    timm:NAME                      timm: a model of timm, with random weights
    hf:CONFIG                      hf: a model of transformers, by config.json, its directory, or a bare type
    package.module:function        module: a user's own function or class
    path/to/file.py:function       file: the same, in a file

    form: catalogue, timm, hf, module or file, as on the right. target: the name, the config, the module or the path.
    function: the function of a module or file.
    """

    text: str
    form: str
    target: str
    function: str = ""


def parse(text: str) -> Spec:
    """Return the parts of `text`. A file without a function stands for the only module class in it. Raises ValueError
    for a text in none of the five forms; nothing else is checked."""
    head, colon, rest = text.partition(":")
    if colon and head in PACKAGES:
        if not rest:
            raise ValueError(f"{text!r} names no model: expected {head}:{'NAME' if head == 'timm' else 'CONFIG'}")
        return Spec(text, head, rest)
    if colon:
        return _function(text)
    if text.endswith(".py"):
        modules = _modules_in(Path(text).expanduser())
        if len(modules) == 1:
            return _function(f"{text}:{modules[0]}")
        raise ValueError(f"{text!r} names no function: expected {text}:{modules[0] if modules else 'function'}")
    if "/" in text or ("." in text and text not in ENTRIES):
        raise ValueError(f"{text!r} is no model: expected {FORMS}")
    return Spec(text, "catalogue", text)


def _function(text: str) -> Spec:
    target, _, function = text.rpartition(":")
    is_file = target.endswith(".py") or "/" in target
    if not target or not function.isidentifier():
        raise ValueError(f"{text!r} names no function: expected {FORMS}")
    if not is_file and not all(part.isidentifier() for part in target.split(".")):
        raise ValueError(f"{text!r} is no model: expected {FORMS}")
    return Spec(text, "file" if is_file else "module", target, function)


def check(text: str) -> Spec:
    """Return the parts of `text`, after all checks that need not run its code.

    Raises ValueError (the caller's mistake, one line with the nearest name) or Unavailable (a package that is missing,
    or a model that would have to be downloaded, with what to type).
    """
    spec = parse(text)
    _CHECKS[spec.form](spec)
    return spec


def require(package: str) -> None:
    """Raise Unavailable, with the line to type, if an optional package is not installed."""
    if importlib.util.find_spec(package) is None:
        raise Unavailable(f"{package} is not installed: python -m pip install '{INSTALL[package]}'")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "; nearest: NAME", or "" if nothing is near."""
    near = text_files.nearest(str(name), list(names), 1, 0.5)  # a file may have a number there
    return f"; nearest: {near[0]}" if near else ""


def read_config(spec: Spec) -> Mapping[str, Any] | None:
    """Read the config file of an hf: model; None for a bare model type.

    Raises ValueError for a file that is missing or no config, Unavailable for a name that only the hub knows.
    """
    path = Path(spec.target).expanduser()
    check_regular(path)
    if path.is_dir():
        path = path / "config.json"
        if not path.is_file():
            raise ValueError(f"{spec.text}: expected a directory that holds config.json; there is none")
    if spec.target.endswith(".json") and not path.is_file():
        raise ValueError(f"{spec.text}: there is no file {spec.target}")
    if "/" in spec.target and not path.is_file():
        raise Unavailable(f"{spec.text}: no such file; of a hub's model, give config.json: nothing is downloaded")
    if not path.is_file():
        return None
    if path.stat().st_size > limit("config_bytes"):
        raise ValueError(f"{spec.text}: {beyond(f'{path.stat().st_size} bytes', 'config_bytes')}")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as fault:  # no UTF-8, no JSON, a number of 5,000 digits, too many brackets
        raise ValueError(f"{spec.text}: expected JSON, got {' '.join(str(fault).split())}") from fault
    if not isinstance(config, dict) or not ("model_type" in config or config.get("architectures")):
        raise ValueError(f"{spec.text}: expected an object with model_type or architectures; it has neither")
    if "auto_map" in config:
        raise Unavailable(
            f"{spec.text}: its code is on the hub (auto_map): nothing is downloaded; give it as file.py:fn"
        )
    _check_kernels(spec, config)
    _check_counts(spec, config)
    return config


def _check_kernels(spec: Spec, config: Mapping[str, Any]) -> None:
    """Raise ValueError where a configuration, or a part of it, names an implementation that is not part of
    transformers: it would be a kernel of the hub, which is code."""
    for name, value in config.items():
        if _IMPLEMENTATION.search(name):
            for kind in value.values() if isinstance(value, dict) else [value]:
                if kind is not None and kind not in IMPLEMENTATIONS:
                    expected = ", ".join(IMPLEMENTATIONS)
                    raise ValueError(f"{spec.text}: {name}: expected one of {expected}, got {str(kind)[:60]!r}")
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                _check_kernels(spec, part)


IMPLEMENTATIONS = ("eager", "sdpa", "flex_attention", "batched_mm", "grouped_mm")
"""Implementations of attention and experts that are written in PyTorch only."""

_IMPLEMENTATION = re.compile(r"_implementation(_internal)?$")


def _check_counts(spec: Spec, config: Mapping[str, Any]) -> None:
    """Raise ValueError for more layers or experts than the limits, in any part of a configuration: each is a module
    that takes time and memory to build, whatever its size."""
    product = 1
    for name, value in config.items():
        if isinstance(value, dict):
            _check_counts(spec, value)
        elif _COUNTED.search(name) and not _SIZED.search(name):
            values = value if isinstance(value, list) else [value]
            count = max(sum(n for n in values if type(n) is int), len(values))
            if count > limit("config_layers"):
                raise ValueError(f"{spec.text}: {beyond(f'{name} is {count}', 'config_layers')}")
            product *= max(count, 1) if _MULTIPLIED.search(name) else 1
    if product > limit("config_modules"):
        raise ValueError(f"{spec.text}: {beyond(f'its layers and experts are {product}', 'config_modules')}")


_COUNTED = re.compile(r"layer|block|depth|expert|stage|stack|branch|codebook|quantizer")
"""Matches names of a configuration's numbers that are numbers of modules …"""

_SIZED = re.compile(
    r"size|dim|length|_eps|norm|_id|drop|_ratio|factor|_coef|scale|window|per_tok|_freq|std|position|epsilon|_step|theta"
)
"""… except names that match this."""

_MULTIPLIED = re.compile(r"^(?:num_hidden_layers|n_layers?|num_layers|n_routed_experts|num_(?:local_)?experts)$")
"""Matches names of numbers that multiply: each layer has all experts."""


def _modules_in(path: Path) -> list[str]:
    """Return the classes at the top level of a file whose base is called Module; none where it cannot be read."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return []
    bases = {node.name: [ast.unparse(base) for base in node.bases] for node in body if isinstance(node, ast.ClassDef)}
    return [name for name, of_class in bases.items() if any(base.split(".")[-1] == "Module" for base in of_class)]


def _check_function(spec: Spec, source: str, path: str) -> None:
    """Raise ValueError for a source that is not Python, or does not name the function at its top level."""
    try:
        names = symtable.symtable(source, path, "exec").get_identifiers()
    except (SyntaxError, ValueError) as fault:
        raise ValueError(f"{path} is no Python: {fault}") from fault
    if spec.function not in names and "__getattr__" not in names and "import *" not in source:
        raise ValueError(f"{path} has no {spec.function!r}{nearest(spec.function, names)}")


def _check_file(spec: Spec) -> None:
    path = Path(spec.target).expanduser()
    check_regular(path)
    if not path.is_file():
        siblings = path.parent.glob("*.py") if path.parent.is_dir() else ()
        raise ValueError(f"{spec.text}: there is no file {spec.target}{nearest(path.name, (p.name for p in siblings))}")
    _check_function(spec, path.read_text(encoding="utf-8", errors="replace"), spec.target)


def _check_module(spec: Spec) -> None:
    """Check that the top-level module exists, and that it has the function. A module inside a package is not looked
    for, because that would run the package."""
    top = spec.target.partition(".")[0]
    module = importlib.util.find_spec(top)
    if module is None:
        raise ValueError(f"{spec.text}: there is no module {top!r}{nearest(top, PACKAGES)}; expected {FORMS}")
    origin = Path(module.origin) if module.origin and top == spec.target else None
    if origin is not None and origin.suffix == ".py":
        _check_function(spec, origin.read_text(encoding="utf-8", errors="replace"), top)


def _check_hf(spec: Spec) -> None:
    require("transformers")
    read_config(spec)


_CHECKS = {
    "catalogue": lambda spec: check_name(spec.target),
    "timm": lambda _spec: require("timm"),
    "hf": _check_hf,
    "module": _check_module,
    "file": _check_file,
}


def model_digest(text: str) -> str:
    """Return 16 hex digits of SHA-256 over a model's files, each with its name; "" for a model without files (of the
    catalogue, of timm, a bare model type). Raises OSError for a file that cannot be read.

    Nothing is run. Not covered: installed packages, and files that code reads or imports by computed names.
    """
    spec = parse(text)
    files = sorted(_files(spec), key=lambda path: path.as_posix())
    if not files:
        return ""
    whole = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        whole.update(f"{path.name} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()[:16]


def _files(spec: Spec) -> set[Path]:
    """Return the files of a model. For a function: its file and what this imports from its directory, at any depth, or
    all files of its package. For hf: the configuration."""
    from modulefinder import ModuleFinder

    path = Path(spec.target).expanduser()
    if spec.form == "hf":
        path = path / "config.json" if path.is_dir() else path
    elif spec.form == "module":
        top = importlib.util.find_spec(spec.target.partition(".")[0])
        path = Path(top.origin or "") if top is not None else path
    if spec.form not in ("hf", *CODE) or not path.is_file():
        return set()
    if path.name == "__init__.py":
        return set(path.parent.rglob("*.py"))
    finder = ModuleFinder([str(path.resolve().parent)])
    if spec.form != "hf":
        with contextlib.suppress(SyntaxError, ValueError):
            finder.run_script(str(path.resolve()))
    imported = (getattr(module, "__file__", None) for module in finder.modules.values())
    return {path.resolve(), *(Path(file) for file in imported if file)}


CLASSES = 10
FOLDER = "cifar-10-batches-py"
FILES = (
    "data_batch_1",
    "data_batch_2",
    "data_batch_3",
    "data_batch_4",
    "data_batch_5",
    "test_batch",
    "batches.meta",
)
"""Files of the published archive cifar-10-python.tar.gz."""

_CIFAR = "cifar10:"


def directory_of(data: str) -> Path | None:
    """Return the directory of `--data cifar10:DIR`; None for synthetic data.

    Raises ValueError, one line, for any other text and for a directory without the files. torchvision checks their
    content.
    """
    if data == "synthetic":
        return None
    if not data.startswith(_CIFAR) or data == _CIFAR:
        raise ValueError(f"--data: expected synthetic or cifar10:DIR, got {data!r}")
    directory = Path(data.removeprefix(_CIFAR))
    check_cifar(directory, FILES)
    return directory


def check_cifar(directory: Path, files: tuple[str, ...]) -> None:
    """Raise ValueError, one line, unless directory/cifar-10-batches-py holds these files."""
    folder = directory / FOLDER
    try:
        missing = [name for name in files if not (folder / name).is_file()]
    except OSError as fault:
        raise ValueError(f"--data cifar10:{directory}: cannot read {folder}: {fault.strerror}") from fault
    if missing:
        raise ValueError(f"--data cifar10:{directory}: expected {folder}/ with {', '.join(files)}; no {missing[0]}")
