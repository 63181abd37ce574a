"""Which commit is the code that runs here?

Git says it where there is git. A machine without it has the file COMMIT, which `runners.doctor --commit` writes before
the tree travels, or the variable FLOPLEDGER_COMMIT. COMMIT holds a hash of the code, too: code that was changed on the
way is marked `.dirty`, as git would. The variable is believed as it is.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

COMMIT_FILE = "COMMIT"
"""Untracked, and not ignored: only such files travel with a tree. Git's `--dirty` does not see it."""

VARIABLE = "FLOPLEDGER_COMMIT"
DIRTY = ".dirty"
PACKAGES = ("analysis", "cleaning", "flopledger", "measure", "reports", "results", "runners", "workloads")
NO_CODE = {"__pycache__", "runs", "published"}
_HEX = re.compile(r"[0-9a-f]{7,40}")
_LINES = re.compile(r"commit ([0-9a-f]{12})\ncode ([0-9a-f]{64})\n")


def commit_of(root: Path, environment: Mapping[str, str] = os.environ) -> str:
    """The commit of the code at `root`: "g" and hex digits, with `.dirty` where the code was changed since; "" where
    nobody knows. Raises ValueError for a variable that names none."""
    named = environment.get(VARIABLE, "")
    if named and not _HEX.fullmatch(named):
        raise ValueError(f"{VARIABLE}: expected 7 to 40 hex digits of a commit, got {named!r}")
    return _of_git(root) or (f"g{named[:12]}" if named else _of_file(root))


def write_commit(root: Path) -> str:
    """What COMMIT says of the checkout at `root`. Raises ValueError for one without git, or that is not committed."""
    commit, packages = _of_git(root), [name for name in PACKAGES if (root / name).is_dir()]
    if not commit:
        raise ValueError(f"--commit: expected a git checkout, got {root}, which is none")
    changed = _git(root, "status", "--porcelain", "--", *packages).splitlines()
    if changed or commit.endswith(DIRTY):
        what = changed[0].strip() if changed else "a file outside of the packages"
        raise ValueError(f"--commit: expected all code to be committed, got changes: {what}")
    return f"commit {commit[1:]}\ncode {code_hash(root)}\n"


def code_hash(root: Path) -> str:
    """SHA-256 over the names and bytes of all files of the packages."""
    total = hashlib.sha256()
    for file in sorted(_files(root)):
        content = file.read_bytes()
        total.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode())
        total.update(content)
    return total.hexdigest()


def _files(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        for folder, folders, names in os.walk(root / package):
            folders[:] = [name for name in folders if name not in NO_CODE]
            yield from (Path(folder, name) for name in names if not name.endswith(".pyc"))


def _of_file(root: Path) -> str:
    try:
        found = _LINES.fullmatch((root / COMMIT_FILE).read_text())
    except (OSError, UnicodeDecodeError):
        return ""
    return f"g{found[1]}{'' if found[2] == code_hash(root) else DIRTY}" if found else ""


def _of_git(root: Path) -> str:
    if not (root / ".git").exists():  # a virtual environment may lie inside another project's checkout
        return ""
    described = _git(root, "describe", "--always", f"--dirty={DIRTY}", "--abbrev=12", "--exclude=*")
    return f"g{described}" if described else ""


def _git(root: Path, *words: str) -> str:
    """What git answers; "" where there is no git, or it cannot say."""
    import subprocess

    try:
        answer = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return answer.stdout.strip()
