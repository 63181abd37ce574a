"""The layout's rules, checked on the tree itself: what packages export and import, sizes of folders, the map."""

from __future__ import annotations

import ast
import functools
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("runners", "reports", "cleaning", "measure", "workloads", "analysis", "results")
PACKAGES = (*PRODUCT, "flopledger", "tests", "benchmarks")

MOST_MODULES = 14
"""In a folder, besides `__init__` and `__main__`: more have a second question among them."""


@functools.cache
def modules() -> dict[str, Path]:
    """Dotted name → file, of all that is tracked or will be."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *(f"{name}/*.py" for name in PACKAGES)]
    files = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    return {
        file.removesuffix(".py").removesuffix("/__init__").replace("/", "."): Path(file)
        for file in files
        if (ROOT / file).is_file()
    }


Import = tuple[str, str, str | None]
"""(package or module, name, alias) of a `from … import …`."""


def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / modules()[module]).read_text(encoding="utf-8"))


@functools.cache
def contents(module: str) -> tuple[list[Import], list[tuple[bool, str]], list[str]]:
    """What it imports from where, (a class or a function, name) of each definition, and the modules that it imports
    whole. Read once: all modules take seconds."""
    imported: list[Import] = []
    defined: list[tuple[bool, str]] = []
    whole: list[str] = []
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported += ((node.module, each.name, each.asname) for each in node.names)
        elif isinstance(node, ast.Import):
            whole += (each.name for each in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.append((isinstance(node, ast.ClassDef), node.name))
    return imported, defined, whole


def imports(module: str) -> list[Import]:
    return contents(module)[0]


@functools.cache
def exports(package: str) -> dict[str, str]:
    """Name → module, of what the `__init__.pyi` of a package hands on."""
    stub = (ROOT / modules()[package]).with_suffix(".pyi")
    lines = ast.parse(stub.read_text(encoding="utf-8")).body if stub.is_file() else []
    return {
        each.name: f"{package}.{node.module}"
        for node in lines
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }


def is_package(module: str) -> bool:
    return module in modules() and modules()[module].name == "__init__.py"


def crossings() -> Iterator[tuple[str, str, str]]:
    """(module, package or module, name) of each public name that is imported from outside of its package."""
    for module in modules():
        if module.startswith((*PRODUCT, "flopledger")):
            own = module if is_package(module) else module.rpartition(".")[0]
            for source, name, _ in imports(module):
                package = source if is_package(source) else source.rpartition(".")[0]
                inside = f"{own}.".startswith(f"{package}.")
                if source.startswith(PRODUCT) and not inside and name[0] != "_" and f"{source}.{name}" not in modules():
                    yield module, source, name


def test_no_module_imports_one_of_our_packages_whole() -> None:
    """The wheel has them under another name, and `import results` would then bind `flopledger`."""
    whole = {
        (module, name)
        for module in modules()
        if module.startswith((*PRODUCT, "flopledger"))
        for name in contents(module)[2]
    }
    assert {each for each in whole if each[1].partition(".")[0] in PRODUCT} == set()


def test_a_name_of_another_package_is_imported_from_the_package() -> None:
    """Not those of commands, which have no interface, nor names that are also a module's, or that two modules have."""
    places = defaultdict(set)
    for _, source, name in crossings():
        if not is_package(source):
            places[source.rpartition(".")[0], name].add(source)
    direct = {
        f"{package}: {name}"
        for (package, name), sources in places.items()
        if len(sources) == 1 and f"{package}.{name}" not in modules()
        if package != "runners" and f"{package}.__main__" not in modules()
    }
    assert direct == set()


def test_a_package_exports_what_others_import() -> None:
    """And nothing else: each name of an `__init__.pyi` has a reader outside of its package."""
    read = {(source, name) for _, source, name in crossings()}
    read |= {
        (source, name)
        for module in modules()
        if module.startswith(("tests.", "benchmarks."))
        for source, name, _ in imports(module)
    }
    packages = [module for module in modules() if is_package(module) and exports(module)]
    assert len(packages) > 50
    unread = {f"{package}.{name}" for package in packages for name in exports(package) if (package, name) not in read}
    assert unread == set()


def test_a_package_says_what_it_does_not_claim() -> None:
    """In the second paragraph of its docstring; commands say it in their --help."""
    brief = [
        module
        for module in filter(is_package, modules())
        if module.startswith(PRODUCT) and f"{module}.__main__" not in modules()
        if "\n\n" not in (ast.get_docstring(tree(module)) or "")
    ]
    assert brief == []


def test_what_a_package_exports_is_there() -> None:
    bodies: dict[str, list[ast.stmt]] = {}
    for package in filter(exports, filter(is_package, modules())):
        for name, module in exports(package).items():
            if module not in bodies:
                bodies[module] = tree(module).body
            bound = {getattr(node, "name", None) for node in bodies[module]}
            for node in bodies[module]:
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                bound |= {
                    each.id for target in targets if target for each in ast.walk(target) if isinstance(each, ast.Name)
                }
                if isinstance(node, (ast.ImportFrom, ast.Import)):
                    bound |= {each.asname or each.name for each in node.names}
                if isinstance(node, (ast.If, ast.Try, ast.With)):
                    bound |= {getattr(each, "id", getattr(each, "name", None)) for each in ast.walk(node)}
            assert name in bound, f"{module} has no {name}"
            assert f"{package}.{name}" not in modules(), f"{name} is a module of {package}, too"


def stands_alone(file: Path) -> bool:
    """Whether the name says that the file has to be one of its own."""
    return file.name not in ("__init__.py", "__main__.py")


def test_no_folder_has_more_modules_than_a_reader_can_see() -> None:
    counts = Counter(file.parent for name, file in modules().items() if name.startswith(PRODUCT) and stands_alone(file))
    assert {str(folder): count for folder, count in counts.items() if count > MOST_MODULES} == {}


MAP = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_map_is_one_screen_and_has_every_package_and_document() -> None:
    assert len(MAP.splitlines()) <= 60
    listed = {
        line.split(" | ")[0].strip("| `/"): set(line.split(" | ")[2].split(", "))
        for line in MAP.splitlines()
        if line.startswith("| `")
    }
    assert listed == {name: {file.parent.name for file in ROOT.glob(f"{name}/*/__init__.py")} for name in PRODUCT}
    assert [file.name for file in (ROOT / "docs").glob("*.md") if f"({file.name})" not in MAP] == ["index.md"]
