"""Command, law, injected fault: `first_run.sh` with a stub for Python; a failed or killed stage costs only itself.

Each stage leaves a file and is skipped the next time. The stages themselves are tested where they are.
"""

import os
import shutil
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu" / "first_run.sh"

STUB = """#!/bin/bash
echo "$*" >> calls
for fault in $FAULTS; do
    case "$*" in *"${fault%%=*}"*) case "${fault#*=}" in hang) sleep 60;; *) exit "${fault#*=}";; esac;; esac
done
case "$*" in
*runners.sweep*)
    while [ $# -gt 0 ]; do
        case "$1" in --out) mkdir "$2" && echo run > "$2/manifest.json";; esac
        shift
    done;;
*) echo "{}";;
esac
exit 1
"""
"""Its exit code is that of cells or checks that failed, which are results, too."""

FILES = ["ceilings.json", "facts.json", "log.txt", "probe.json", "profiles.tar.gz", "self_test.json", "suite.tar.gz"]


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "benchmarks" / "gpu").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "benchmarks" / "gpu")
    (tmp_path / "python").write_text(STUB)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def started(tree, faults="", **more):
    environment = {**os.environ, "PYTHON": str(tree / "python"), "FAULTS": faults, **more}
    words = ["bash", str(tree / "benchmarks" / "gpu" / "first_run.sh"), "out"]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=tree, env=environment, stdout=pipe, text=True, start_new_session=True)


def ended(tree, faults="", **more):
    """What it says, the files that it leaves, and what it has called."""
    said, _ = started(tree, faults, **more).communicate(timeout=60)
    calls = (tree / "calls").read_text().splitlines()
    (tree / "calls").unlink()
    return said, sorted(file.name for file in (tree / "out").iterdir()), calls


def test_every_stage_leaves_a_file_and_is_skipped_the_next_time(tree):
    said, files, calls = ended(tree, TOTAL_S="560")
    assert files == FILES
    assert "nobody knows which commit this is" in said
    assert len(calls) == 6
    suite = calls[3].split()
    assert "--suite gpu" in calls[3]
    budget_s = int(suite[suite.index("--time-budget") + 1])
    assert 400 < budget_s <= 560 - 110 - 30, "profiles and ceilings have 110 s, and the suite 30 to end in"
    shutil.rmtree(tree / "out")  # as where each command finds a new folder
    said, files, calls = ended(tree, FLOPLEDGER_COMMIT="0123456789ab")
    assert files == FILES
    assert "nobody knows" not in said
    assert [call.split()[:4] for call in calls] == [["-m", "runners.sweep", "--resume", each] for each in RUNS]


RUNS = ("results/runs/first_run/suite", "results/runs/first_run/profiles")


@pytest.mark.parametrize(("fault", "missing"), [("probe.py=2", "probe.json"), ("runners.ceiling=2", "ceilings.json")])
def test_a_stage_that_fails_costs_itself(tree, fault, missing):
    said, files, _ = ended(tree, fault)
    assert files == [file for file in FILES if file != missing]
    assert f"{missing}: not done" in said
    _, files, calls = ended(tree)
    assert files == FILES
    assert len(calls) == 1 + len(RUNS), "what had failed, and the two runs"


@pytest.mark.parametrize(
    ("hangs", "left"),
    [
        ("probe.py=hang", ["facts.json"]),
        ("self-test=hang", ["facts.json", "probe.json"]),
        ("--suite=hang", ["facts.json", "probe.json", "self_test.json"]),
        ("kineto=hang", ["facts.json", "probe.json", "self_test.json", "suite.tar.gz"]),
        ("ceiling=hang", [file for file in FILES if file not in ("ceilings.json", "log.txt")]),
    ],
)
def test_killed_in_the_middle_of_a_stage_what_was_done_is_whole(tree, hangs, left):
    running = started(tree, hangs)
    until_s = time.monotonic() + 30
    calls = tree / "calls"
    while not (calls.exists() and hangs.partition("=")[0] in calls.read_text()):
        assert time.monotonic() < until_s
        time.sleep(0.05)
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()
    subprocess.run(
        ["pkill", "-9", "-s", str(running.pid)], check=False
    )  # what `timeout` started has a group of its own
    files = [file for file in (tree / "out").iterdir() if file.name != "log.txt"]
    assert sorted(file.name for file in files) == sorted(left)
    for file in files:
        if file.suffix == ".gz":
            with tarfile.open(file) as archive:
                assert any(name.endswith("/manifest.json") for name in archive.getnames())
        else:
            assert file.read_text() == "{}\n"
    calls.unlink()
    assert ended(tree)[1] == FILES
