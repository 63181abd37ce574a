"""One framework's answers, from a process of its own that is ended when its time is over."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure.audit.child import Question, task_of


@dataclass(frozen=True)
class AuditedPackage:
    """A package: its version, and the folder that its files are in."""

    version: str
    folder: Path


def find(folder: Path, package: str) -> AuditedPackage | None:
    """The package in a folder, or where there is no such folder in this environment; None: it is in neither."""
    if not folder.is_dir():
        try:
            installed = importlib.metadata.distribution(package)
        except importlib.metadata.PackageNotFoundError:
            return None
        return AuditedPackage(installed.version, Path(str(installed.locate_file(""))))
    for each in importlib.metadata.distributions(path=[str(folder)]):
        if each.metadata["Name"].lower().replace("_", "-") == package:
            return AuditedPackage(each.version, folder)
    return None


def ask(
    framework: str, folders: Sequence[Path], questions: Sequence[Question], timeout_s: float
) -> list[dict[str, Any]]:
    """An answer for each question, in order: {"flop"} or {"reason"}, and {"shims"}.

    folders: of the framework's package, and after it of the package that it needs, if it needs one."""
    with tempfile.TemporaryDirectory() as scratch:
        lines, reason = _run(framework, folders, questions, timeout_s, scratch)
    answers: list[dict[str, Any]] = [json.loads(line) for line in lines if line.endswith("}")]
    return answers + [{"reason": reason} for _ in range(len(questions) - len(answers))]


def _run(
    framework: str, folders: Sequence[Path], questions: Sequence[Question], timeout_s: float, scratch: str
) -> tuple[list[str], str]:
    """The lines that it said, and why there are no more."""
    environment = os.environ | {
        "TMPDIR": scratch,
        "HF_HOME": scratch,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-W", "ignore", "-m", "measure.audit.child"]
    given = task_of(framework, folders, list(questions))
    try:
        ended = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False
        )
        return ended.stdout.splitlines(), f"its process ended with {ended.returncode}: {_last(ended.stderr)}"
    except subprocess.TimeoutExpired as fault:
        said = fault.stdout or b""
        words = said.decode() if isinstance(said, bytes) else said
        return words.splitlines(), f"no answer within {timeout_s:g} s"


def _last(text: str) -> str:
    """The last line of what a process said."""
    return (text.strip().splitlines() or [""])[-1][:200]
