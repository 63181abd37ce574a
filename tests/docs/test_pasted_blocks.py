"""Command: code blocks of the documents run as they are pasted, in a folder outside the checkout."""

import contextlib
import importlib.util
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "docs/language-model.md", "docs/meter.md")
NEEDED = ("lightning", "transformers", "accelerate")
LIMIT_S = 300

BLOCKS = {
    f"{name} {number}": block
    for name in DOCUMENTS
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text("utf-8"), re.M | re.S))
}


@pytest.mark.survival
@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs_as_pasted(name: str, tmp_path: Path) -> None:
    for package in NEEDED:
        if f"import {package}" in BLOCKS[name] and importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    script = tmp_path / "pasted.py"
    script.write_text(BLOCKS[name], encoding="utf-8")
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "the meter stopped" not in done.stderr
    if '"MFU"' in BLOCKS[name]:
        logged = [line.split() for line in done.stdout.splitlines() if " MFU " in line]
        assert [words[0] for words in logged] == ["9", "19"]
        assert all(0 < float(words[2]) < 1 for words in logged)
    elif "utilization_ratio" in BLOCKS[name]:
        assert 0 < float(done.stdout.strip().splitlines()[-1].split()[0]) < 1


def test_the_lines_of_the_page_on_tables_print_what_it_says() -> None:
    text = (ROOT / "docs" / "projections.md").read_text("utf-8")
    page = text.partition("\n## Tables of operations, by hand\n")[2].partition("\n## ")[0]
    code = "\n".join(line.removeprefix("    ") for line in page.splitlines() if line.startswith("    "))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "docs/projections.md", "exec"), {})  # the page's own code
    assert printed.getvalue().splitlines() == re.findall(r"^    print\(.*\)  +# (.*)$", page, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.survival
def test_several_devices_are_two_processes_here(tmp_path: Path) -> None:
    """The shell's block, in a folder that has the recordings of the checkout."""
    page = (ROOT / "docs" / "cluster.md").read_text("utf-8")
    text = page.partition("## On several devices\n")[2].partition("\n## ")[0]
    block = "\n".join(line.strip() for line in text.splitlines() if line.startswith("    "))
    assert block.count("torchrun --nproc-per-node 2 ") == 2
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", block],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    plans = (tmp_path / "two" / "parallel.csv").read_text("utf-8")
    assert all(f",{plan}," in plans for plan in ("ddp=1", "ddp=2", "fsdp=2"))
    for heading in ("3 ranks, 5 steps", "all_reduce"):
        assert heading in done.stdout
