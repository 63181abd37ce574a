"""Law, command, injected fault: what a release holds, and that its wheel does elsewhere what the checkout does.

The project has modules of the same names as our packages, and stands before the wheel on the path. Each of them
leaves a note when it is imported. The wheel is unpacked by pip into a folder of its own: nothing is downloaded.
"""

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import setup
from tests.support.fakes.commands import module_of, running

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[2]
LARGEST_BYTES = 2_800_000
NOTE = """from pathlib import Path
(Path(__file__).parents[{up}] / 'imported').open('a').write(__name__ + ' ')
OWN = True
"""
LOOP = """
import analysis, cleaning, measure, reports, results, runners, workloads  # this project's own
import flopledger, torch

model = torch.nn.Linear(8, 4)
with flopledger.UtilizationMeter(model, warm_up_steps=0, energy=False) as meter:
    for _ in range(3):
        with meter.step():
            model(torch.randn(2, 8)).sum().backward()
assert all(each.OWN for each in (analysis, cleaning, measure, reports, results, runners, workloads))
print(meter.summary().model_flop_per_step, flopledger.count(model, torch.randn(2, 8)).model_flop)
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """The folder of both distributions, built from a copy without tests and published runs."""
    copy, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    for name in ("flopledger", *setup.PACKAGES):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "published"))
    for file in ROOT.iterdir():
        if file.is_file():
            shutil.copy(file, copy)
    (copy / "results" / "published" / "a-run").mkdir(parents=True)
    (copy / "results" / "published" / "a-run" / "runs.csv").write_text("cell_id\n")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, copy], copy)
    return out


@pytest.fixture(scope="module")
def wheel(dist):
    (path,) = dist.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory):
    """A folder of installed packages that has nothing but the wheel's."""
    path = tmp_path_factory.mktemp("site")
    run([sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", path, wheel], path)
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Somebody's project, half of it modules and half of it packages."""
    path = tmp_path_factory.mktemp("project")
    for name in ("results", "measure", "cleaning"):
        (path / f"{name}.py").write_text(NOTE.format(up=0))
    for name in ("analysis", "runners", "reports", "workloads"):
        (path / name).mkdir()
        (path / name / "__init__.py").write_text(NOTE.format(up=1))
    (path / "loop.py").write_text(LOOP)
    (path / "kineto.json.gz").write_bytes((ROOT / "tests" / "data" / "kineto_torch215.json.gz").read_bytes())
    return path


@pytest.fixture
def flopledger(site, project):
    """Runs the installed program in the project; its output. None of the project's modules may have been imported."""

    def call(*arguments, **more):
        answer = run([site / "bin" / "flopledger", *arguments], project, site, **more)
        assert not (project / "imported").exists(), (project / "imported").read_text()
        return answer

    return call


def run(words, cwd, site=None, timeout_s=240.0, **more):
    """Standard output of a process, which must end well. site: on its path behind the working directory."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "100"} | more
    if site:
        environ["PYTHONPATH"] = os.pathsep.join(map(str, (cwd, site)))
    done = subprocess.run(
        list(map(str, words)), cwd=cwd, env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_a_release_passes_its_check_and_is_small(dist):
    files = sorted(dist.iterdir())
    assert [path.suffix for path in files] == [".whl", ".gz"]
    run([sys.executable, "-m", "twine", "check", "--strict", *files], dist)
    for path in files:
        assert path.stat().st_size < LARGEST_BYTES


def test_a_wheel_has_one_package_with_all_of_the_code(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"flopledger"}
    assert not [name for name in names if re.search(r"\btests?/|published/|runs/", name)]
    for package in setup.PACKAGES:
        for path in (ROOT / package).rglob("*.py*"):
            name = str(path.relative_to(ROOT))
            if path.suffix == ".py":
                assert f"flopledger/_internal/{name}" in names
    for data in (
        "analysis/devices/peaks.csv",
        "reports/shared/templates/page.css",
        "analysis/reach/published_steps.csv.gz",
    ):
        assert f"flopledger/_internal/{data}" in names
    assert "flopledger/py.typed" in names


def test_a_source_distribution_has_no_tests_and_no_published_runs(dist):
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"setup.py", "requirements-measure.txt", "requirements-counters.txt", "README.md"} <= set(names)
    assert not [name for name in names if name.startswith(("tests/", "results/published/", "benchmarks/"))]


def test_the_metadata_say_what_it_needs(site):
    (path,) = site.glob("flopledger-*.dist-info")
    fields = (path / "METADATA").read_text(encoding="utf-8")
    from results.version import VERSION

    assert f"\nVersion: {VERSION}\n" in fields
    assert set(re.findall(r"^Provides-Extra: (.+)$", fields, re.M)) == {
        "counters",
        "models",
        "report",
        "lightning",
        "hf",
        "cluster",
    }
    needed = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", fields, re.M)
    assert {"torch", "numpy", "pandas", "argcomplete"} <= set(needed)
    assert not {"lightning", "transformers", "pytest", "ray"} & set(needed)


def test_nothing_in_the_wheel_names_a_package_of_the_checkout(site):
    """No import, wherever it is, and no text that is the name of a module."""
    left = []
    for path in (site / "flopledger").rglob("*.py*"):
        if path.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            elif isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names = [node.value] if ":" in node.value else []
            else:
                continue
            pattern = rf"({'|'.join(setup.PACKAGES)})(\.\w+)*(:\w+)?"
            left += [(path.name, node.lineno, name) for name in names if re.fullmatch(pattern, name)]
    assert left == []


def test_each_module_can_be_imported_beside_modules_of_the_same_names(site, project):
    code = (
        "import importlib, pathlib, sys\n"
        f"root = pathlib.Path({str(site)!r})\n"
        "for path in sorted((root / 'flopledger').rglob('*.py')):\n"
        "    name = '.'.join(path.relative_to(root).with_suffix('').parts).removesuffix('.__init__')\n"
        "    if not name.endswith(('__main__', 'server_end')):\n"
        "        try:\n"
        "            importlib.import_module(name)\n"
        "        except ModuleNotFoundError as fault:\n"  # of an optional package
        "            assert not fault.name.startswith('flopledger'), fault\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:])))\n"
    )
    assert run([sys.executable, "-W", "ignore", "-c", code, *setup.PACKAGES], project, site).strip() == "[]"


def test_a_loop_imports_its_own_modules_and_the_meter_ours(site, project):
    forward_and_backward = 2 * (2 * 2 * 8 * 4)  # of the weights; the input needs no gradient
    found = run([sys.executable, "loop.py"], project, site)
    (project / "imported").unlink()
    assert [float(number) for number in found.split()] == [forward_and_backward] * 2


def test_a_sweep_with_its_workers_and_what_is_made_of_its_run(flopledger, project):
    tiny = ("--device", "cpu", "--quick", "--target-ci", "0.9", "--models", "synthetic_matmul", "--methods", "exact")
    assert "synthetic_matmul" in flopledger("sweep", *tiny, "--out", "run")
    manifest = json.loads((project / "run" / "manifest.json").read_text())
    assert manifest["commands"][0].startswith("flopledger sweep --device cpu --quick")
    before = (project / "run" / "utilization.csv").read_bytes()
    flopledger("report", "run")
    assert (project / "run" / "utilization.csv").read_bytes() == before
    assert (project / "run" / "report.html").stat().st_size > 0


def test_counters_in_processes_of_their_own_count_as_in_the_checkout(flopledger, capsys):
    words = ("squeezenet1_1", "--counters", "exact,fvcore,torchinfo", "--format", "json")
    differ = r'"(\w*duration_s|peak_memory_bytes)": [\d.e+-]+'
    found, expected = flopledger("count", *words), in_the_checkout("count", words, capsys)
    assert '"fvcore"' in found
    assert '"torchinfo"' in found
    assert re.sub(differ, "", found) == re.sub(differ, "", expected)


@pytest.mark.parametrize(
    "words",
    [
        ("formula", "alexnet", "--format", "json"),
        ("footprint", "alexnet", "--format", "json"),
        ("trace", "kineto.json.gz", "--format", "json"),
        ("doctor", "--peaks", "NVIDIA L40S"),
    ],
    ids=lambda words: words[0],
)
def test_a_command_prints_what_it_prints_in_the_checkout(flopledger, project, words, capsys, monkeypatch):
    monkeypatch.chdir(project)
    assert flopledger(*words) == in_the_checkout(words[0], words[1:], capsys)


def in_the_checkout(name, words, capsys):
    """Standard output of the checkout's command, run in this process."""
    code, out, _ = running(importlib.import_module(module_of(name)).main, capsys)(*words)
    assert code == 0
    return out


def test_help_shows_the_command_as_it_is_installed(flopledger):
    assert flopledger("sweep", "--help").startswith("usage: flopledger sweep ")
    assert "Run a command as flopledger NAME " in flopledger()


@pytest.mark.parametrize(
    ("source", "renamed"),
    [
        ("from results.errors import Unavailable\n", "from flopledger._internal.results.errors import Unavailable\n"),
        ("if a:\n    from measure.meter import b\n", "if a:\n    from flopledger._internal.measure.meter import b\n"),
        ("A = 'runners.workers.devices:probe'\n", "A = 'flopledger._internal.runners.workers.devices:probe'\n"),
        ('A = ("measure.device.server_end",)\n', 'A = ("flopledger._internal.measure.device.server_end",)\n'),
        ('library="workloads"\n', 'library="workloads"\n'),  # a label: no module's file
        ("results = analysis.of(results)\n", "results = analysis.of(results)\n"),
        ("from .results import a\n", "from .results import a\n"),
        ('"""`python -m runners.sweep --quick`"""\n', '"""`flopledger sweep --quick`"""\n'),
    ],
)
def test_what_is_renamed_and_what_is_not(source, renamed):
    assert setup.renamed(source) == renamed
    assert setup.renamed(renamed) == renamed


def test_code_and_line_numbers_are_those_of_the_checkout(site):
    """In the wheel a function has its line, and its docstring, unless its name has an underscore."""
    place = "measure/meter/calls.py"
    lines, documented = [], []
    for folder in (ROOT, site / "flopledger" / "_internal"):
        every = list(ast.walk(ast.parse((folder / place).read_text(encoding="utf-8"))))
        named = [node for node in every if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        lines.append([(node.name, node.lineno) for node in named])
        documented.append({node.name for node in named if ast.get_docstring(node)})
    assert lines[0] == lines[1]
    assert documented[0] - documented[1] == {name for name in documented[0] if re.match("_(?!_)", name)} != set()


def test_an_import_that_binds_a_package_name_is_refused():
    with pytest.raises(SyntaxError, match="expected `from results"):
        setup.renamed("import results.store\n")
