"""Law: no module imports one of our packages as a whole; a test file says which kinds of test it holds."""

import ast
import functools
import re
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


def test_the_first_line_of_a_test_file_says_which_kinds_of_test_it_holds() -> None:
    kind = "(definition|law|known answer|command|injected fault)"
    files = {path: (ROOT / path).read_text(encoding="utf-8").partition("\n")[0].lower() for path in modules().values()}
    tests = {path: line for path, line in files.items() if path.name.startswith("test_")}
    assert len(tests) > 200
    assert [path for path, line in tests.items() if not re.match(rf'"""{kind}(, {kind})*: ', line)] == []
