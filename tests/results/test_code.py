"""Which commit the code is, on a machine with git, with the file COMMIT, with the variable, and with none of them."""

import shutil
import subprocess

import pytest

from results.store import manifest
from results.store.code import COMMIT_FILE, commit_of, write_commit
from runners.doctor import command

COMMIT = "0123456789abcdef"


@pytest.fixture
def checkout(tmp_path):
    path = tmp_path / "checkout"
    (path / "runners").mkdir(parents=True)
    (path / "runners" / "a.py").write_text("a = 1\n")
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "first"]):
        git(path, *words)
    return path


def git(path, *words):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(path), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def travelled(checkout, tmp_path):
    """The checkout with its COMMIT, as a machine without git has it: no `.git`."""
    (checkout / COMMIT_FILE).write_text(write_commit(checkout))
    shutil.copytree(checkout, tmp_path / "there", ignore=shutil.ignore_patterns(".git"))
    return tmp_path / "there"


def test_the_file_says_the_commit_where_there_is_no_git(checkout, travelled):
    commit = "g" + git(checkout, "rev-parse", "HEAD")[:12]
    assert commit_of(travelled, {}) == commit
    assert commit_of(checkout, {}) == commit, "the untracked file does not make the checkout dirty"


@pytest.mark.parametrize("change", [("a.py", "a = 2\n"), ("b.py", "")])
def test_code_that_changed_on_the_way_is_dirty(travelled, change):
    name, text = change
    (travelled / "runners" / name).write_text(text)
    assert commit_of(travelled, {}).endswith(".dirty")


def test_what_a_run_leaves_is_no_change_of_the_code(travelled):
    for file in ("runners/__pycache__/a.cpython-312.pyc", "results/runs/one/runs.csv"):
        (travelled / file).parent.mkdir(parents=True)
        (travelled / file).write_text("")
    assert not commit_of(travelled, {}).endswith(".dirty")


def test_the_variable_is_asked_before_the_file_and_after_git(checkout, travelled):
    assert commit_of(travelled, {"FLOPLEDGER_COMMIT": COMMIT}) == "g0123456789ab"
    assert commit_of(checkout, {"FLOPLEDGER_COMMIT": COMMIT}) == "g" + git(checkout, "rev-parse", "HEAD")[:12]
    with pytest.raises(ValueError, match="7 to 40 hex digits of a commit, got 'main'"):
        commit_of(travelled, {"FLOPLEDGER_COMMIT": "main"})


@pytest.mark.parametrize("content", [b"", b"commit main\n", b"\xff"])
def test_a_file_that_says_no_commit_is_none(travelled, content):
    (travelled / COMMIT_FILE).write_bytes(content)
    assert commit_of(travelled, {}) == ""


def test_only_a_committed_checkout_is_written_down(checkout, travelled):
    with pytest.raises(ValueError, match="expected a git checkout"):
        write_commit(travelled)
    (checkout / "runners" / "new.py").write_text("")
    with pytest.raises(ValueError, match=r"expected all code to be committed, got changes: \?\? runners/new\.py"):
        write_commit(checkout)


def test_the_doctor_writes_it(checkout, monkeypatch, capsys):
    monkeypatch.setattr(manifest, "ROOT", checkout)
    assert command.main(["--commit"]) == 0
    assert (checkout / COMMIT_FILE).read_text() == write_commit(checkout)
    assert capsys.readouterr().out == f"COMMIT: commit {git(checkout, 'rev-parse', 'HEAD')[:12]}\n"
    (checkout / "runners" / "a.py").write_text("a = 2\n")
    with pytest.raises(SystemExit) as ended:
        command.main(["--commit"])
    assert ended.value.code == 2
