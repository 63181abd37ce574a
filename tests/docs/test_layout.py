"""Law: no module imports one of our packages as a whole, because the wheel has them under another name."""

import ast
import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("runners", "reports", "cleaning", "measure", "workloads", "analysis", "results")
PACKAGES = (*PRODUCT, "flopledger", "tests", "benchmarks")


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


def tree(module: str) -> ast.Module:
    return ast.parse((ROOT / modules()[module]).read_text(encoding="utf-8"))


def test_no_module_imports_one_of_our_packages_whole() -> None:
    """The wheel has them under another name, and `import results` would then bind `flopledger`."""
    whole = {
        (module, name)
        for module in modules()
        if module.startswith((*PRODUCT, "flopledger"))
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Import)
        for name in (each.name for each in node.names)
    }
    assert {each for each in whole if each[1].partition(".")[0] in PRODUCT} == set()
