"""Command, injected fault: each notebook has only calls and output, and runs from a clean kernel in small sizes."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from flopledger import notebooks as install

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = (
    "cost_as_a_formula",
    "measure_your_gpu",
    "meter_in_your_loop",
    "read_a_profile",
    "reproduce_the_post",
    "why_do_counters_disagree",
)
LOGIC = (ast.FunctionDef, ast.ClassDef, ast.Lambda, ast.For, ast.While, ast.If, ast.Try)


SHOWN = {"meter_in_your_loop": {"For"}}
"""Logic that is what the notebook is about: the training loop itself."""


def book(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def code(name: str) -> list[str]:
    return [cell.source for cell in book(name).cells if cell.cell_type == "code"]


def python(source: str) -> str:
    """A cell without the lines that IPython hands to the shell or takes for its own."""
    return "\n".join(line for line in source.splitlines() if not line.startswith(("!", "%")))


def another_python(folder: Path) -> Path:
    """A folder with a `python`, `python3` and `pip` that have nothing installed and fail: first in PATH, they are not
    to be run."""
    found = folder / "another"
    found.mkdir()
    for name in ("python", "python3", "pip"):
        (found / name).write_text("#!/bin/sh\necho another python >&2\nexit 97\n")
        (found / name).chmod(0o755)
    return found


def first_cell(name: str, folder: Path, ran: list[list[str]], **environment: str) -> str:
    """Runs the first cell but for its last line in a folder; the commands it starts go to `ran`. Where it goes."""
    script = "import os, subprocess\nran = []\nsubprocess.run = lambda step, **_: ran.append(step)\n"
    script += "os.chdir = lambda place: print(repr((ran, place)))\n"
    script += python(code(name)[0])
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "FLOPLEDGER_SOURCE": "", **environment},
        check=True,
    )
    steps, place = ast.literal_eval(done.stdout)
    ran += steps
    return str(place)


def test_the_first_cell_takes_what_is_there(tmp_path: Path) -> None:
    """A checkout as it is; else a wheel with the kernel's own pip; else a clone of the one address that is set."""
    ran: list[list[str]] = []
    assert first_cell(NAMES[0], FOLDER, ran) == ".."
    assert ran == []
    (tmp_path / "flopledger-0.1.0-py3-none-any.whl").touch()
    assert first_cell(NAMES[0], tmp_path, ran) == "."
    wheel = [sys.executable, "-m", "pip", "install", "--quiet", "flopledger-0.1.0-py3-none-any.whl"]
    assert ran == [wheel]
    (tmp_path / "empty").mkdir()
    ran.clear()
    assert first_cell(NAMES[0], tmp_path / "empty", ran, FLOPLEDGER_SOURCE="the-address") == "flopledger"
    assert ran == [["git", "clone", "--quiet", "--depth", "1", "the-address", "flopledger"]]


def test_a_wheel_needs_no_requirements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "CHECKOUT", tmp_path)
    monkeypatch.setattr(install, "version", {"torch": "2.15.0", "torchvision": "0.30.0"}.__getitem__)
    assert install.main(["requirements-counters.txt"]) == (
        "ready: torch==2.15.0, torchvision==0.30.0; installed from a wheel, without requirements-counters.txt"
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_can_be_read_where_it_cannot_be_run_and_holds_no_logic(name: str) -> None:
    nbformat.validate(book(name))
    shown = json.dumps([cell.get("outputs") for cell in book(name).cells])
    assert '"image/png"' in shown
    assert not re.search("Traceback|/(home|root|tmp|opt|work)/", shown)
    for source in code(name):
        found = [type(node).__name__ for node in ast.walk(ast.parse(python(source))) if isinstance(node, LOGIC)]
        assert not set(found) - SHOWN.get(name, set()), f"{name}: {found} in\n{source}"


@pytest.mark.parametrize("name", NAMES)
def test_the_first_cell_installs_from_a_checkout(name: str) -> None:
    first = code(name)[0].splitlines()
    assert first[-1].startswith("%run -m flopledger.notebooks")
    assert first[:-1] == code(NAMES[0])[0].splitlines()[:-1]
    assert all((install.CHECKOUT / file).is_file() for file in first[-1].split()[3:])


@pytest.mark.notebooks
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_a_clean_kernel(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOPLEDGER_SMALL", "1")
    monkeypatch.setenv("FLOPLEDGER_NOTEBOOK_OUT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{another_python(tmp_path)}{os.pathsep}{os.environ['PATH']}")
    asked = book(name)
    ran = nbformat.v4.new_notebook(metadata=asked.metadata)
    for cell in asked.cells:
        ran.cells.append(cell)
        if cell.cell_type == "code" and "\n!{sys.executable}" in f"\n{cell.source}":
            ran.cells.append(nbformat.v4.new_code_cell("assert _exit_code == 0, _exit_code"))
    NotebookClient(ran, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    shown = json.dumps([cell.get("outputs") for cell in ran.cells])
    assert "ready: torch==" in shown
    assert "Traceback" not in shown
    drawn = sum(source.count("Image(f") + source.count(".plot(") for source in code(name))
    assert shown.count('"image/png"') == drawn
    assert drawn or '"text/html"' in shown  # a picture or a frame of rows


def test_torch_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(arguments: list[str], **_options: Any) -> SimpleNamespace:
        asked.append(arguments)
        return SimpleNamespace(returncode=0, stderr="")

    monkeypatch.setattr(install, "version", {"torch": "2.11.0+cu128", "torchvision": "0.26.0"}.__getitem__)
    monkeypatch.setattr(subprocess, "run", run)
    assert install.main(["requirements-counters.txt"]) == "ready: torch==2.11.0+cu128, torchvision==0.26.0"
    assert asked[0][-2:] == ["torch==2.11.0+cu128", "torchvision==0.26.0"]
    named = [Path(part).name for part in asked[0] if part.endswith(".txt")]
    assert named == ["requirements.txt", "requirements-counters.txt"]


def test_a_torch_out_of_range_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "Looking for it\nERROR: Cannot install torch<2.16,>=2.11 because these package versions conflict.\nmore"
    monkeypatch.setattr(install, "version", {"torch": "2.9.1", "torchvision": "0.24.1"}.__getitem__)
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: SimpleNamespace(returncode=1, stderr=told))
    assert install.main([]) == (
        "pip could not install beside torch==2.9.1, torchvision==0.24.1: "
        "ERROR: Cannot install torch<2.16,>=2.11 because these package versions conflict."
    )
