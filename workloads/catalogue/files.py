"""Whether the files that a name stands for are there and still the same, before anything is built. No torch.

`model_digest` is a checksum of the files that a model is made of: of a function's file the file and the modules and
packages beside it that it imports, by name, at any depth; of `hf:` the configuration. Nothing is run. Not covered:
packages that are installed, and what code reads or imports by names that it computes.

`directory_of` is where `--data cifar10:DIR` points. It sees that the files are there; whether they hold what they
should, torchvision checks by their checksums when they are read.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from workloads.catalogue.model_names import Spec, parse

DIGITS = 16


def model_digest(text: str) -> str:
    """16 hex digits of SHA-256 over a model's files, each with its name; "" for a model that has none of its own (of
    the catalogue, of timm, a bare model type). Raises OSError for a file that cannot be read."""
    spec = parse(text)
    files = sorted(_files(spec), key=lambda path: path.as_posix())
    if not files:
        return ""
    whole = hashlib.sha256()
    for path in files:
        content = path.read_bytes()
        whole.update(f"{path.name} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()[:DIGITS]


def _files(spec: Spec) -> set[Path]:
    path = Path(spec.target).expanduser()
    if spec.form == "hf":
        config = path / "config.json" if path.is_dir() else path
        return {config} if config.is_file() else set()
    if spec.form == "file":
        return _with_imports(path.resolve())
    origin = _module_file(spec.target) if spec.form == "module" else None
    return _with_imports(origin) if origin is not None else set()


def _module_file(name: str) -> Path | None:
    """The file of a module, found without importing the packages that it is in; None where there is none."""
    top, *rest = name.split(".")
    found = importlib.util.find_spec(top)
    if found is None or found.origin is None:
        return None
    here = Path(found.origin)
    for part in rest:
        here = _beside(here.parent, part) or Path()
    return here if here.is_file() else None


def _with_imports(first: Path) -> set[Path]:
    """A Python file and what it imports from its own directory, which may import more."""
    found: set[Path] = set()
    waiting = [first.resolve()]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        if path.name == "__init__.py":  # any module of a package may be what the name stands for
            waiting += [each.resolve() for each in path.parent.rglob("*.py")]
        names = _imported(path)
        waiting += [each.resolve() for name in names if (each := _beside(first.parent, name)) is not None]
    return found


def _beside(directory: Path, name: str) -> Path | None:
    for candidate in (directory / f"{name}.py", directory / name / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


def _imported(path: Path) -> Iterator[str]:
    """The first part of each name that a file imports; of a file that is no Python none."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module.partition(".")[0]
            else:
                yield from (alias.name for alias in node.names)


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
"""What the published archive cifar-10-python.tar.gz unpacks to."""

_PREFIX = "cifar10:"


def directory_of(data: str) -> Path | None:
    """The directory of `--data cifar10:DIR`; None for synthetic data.

    Raises ValueError, one line, for another word or a directory without the files.
    """
    if data == "synthetic":
        return None
    if not data.startswith(_PREFIX) or data == _PREFIX:
        raise ValueError(f"--data: expected synthetic or cifar10:DIR, got {data!r}")
    directory = Path(data.removeprefix(_PREFIX))
    check(directory, FILES)
    return directory


def check(directory: Path, files: tuple[str, ...]) -> None:
    """Raises ValueError, one line, unless directory/cifar-10-batches-py holds these files."""
    folder = directory / FOLDER
    try:
        missing = [name for name in files if not (folder / name).is_file()]
    except OSError as fault:
        raise ValueError(f"--data cifar10:{directory}: cannot read {folder}: {fault.strerror}") from fault
    if missing:
        raise ValueError(f"--data cifar10:{directory}: expected {folder}/ with {', '.join(files)}; no {missing[0]}")
