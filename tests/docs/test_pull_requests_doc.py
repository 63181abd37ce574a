"""The workflow that a user copies: it can be read, and its commands are ones that the commands take."""

from __future__ import annotations

import shlex
from pathlib import Path

import yaml

from runners.report import command as report_command
from runners.sweep import options as sweep_options

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / "docs" / "templates" / "pull-request.yml"
PAGE = (ROOT / "docs" / "pull-requests.md").read_text(encoding="utf-8")


def test_the_commands_of_the_workflow_are_taken() -> None:
    found = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    env, (job,) = found["env"], found["jobs"].values()
    lines = [line for step in job["steps"] for line in step.get("run", "").splitlines()]
    commands = {}
    for line in lines:
        if line.startswith("flopledger "):
            text = line.partition(" > ")[0].partition(" || ")[0]
            for name, value in env.items():
                text = text.replace(f"${name}", value)
            _, command, *arguments = shlex.split(text)
            commands[command] = arguments
    swept = sweep_options.parser().parse_args(commands["sweep"])
    assert (swept.models, swept.against, swept.slower) == (("model.py:build",), Path("../old"), 0.1)
    reported = report_command._parser().parse_args(commands["report"])
    assert [path.name for path in reported.runs] == ["old", "new"]
    assert dict(reported.fail_if)["slower"] == swept.slower
    assert reported.format == "markdown"


def test_the_page_names_every_condition_and_the_workflow() -> None:
    from runners.report.gate import NAMES

    assert all(f"`{name}:" in PAGE for name in NAMES)
    assert "(templates/pull-request.yml)" in PAGE
