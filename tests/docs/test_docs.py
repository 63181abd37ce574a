"""Law: protocol numbers, precisions, commands, links, paths and requirements in documents agree with the code."""

import itertools
import re
import tomllib
from pathlib import Path

import pytest

from analysis.devices.precisions import PRECISIONS
from analysis.stats.summary import BATCHES
from measure.timing.stopping import CPU_PROTOCOL, CUDA_PROTOCOL
from runners import __main__ as runners_main

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
CONVENTIONS = (ROOT / "docs" / "conventions.md").read_text(encoding="utf-8")

LINES = (
    "    python -m pip install -r requirements.txt && python -m runners.sweep",
    "    python -m pip install -r requirements-dev.txt && python -m pytest",
)


def rows(document: str, header: str) -> list[list[str]]:
    """The cells of each line of the table that has this header."""
    _, found, rest = document.partition(header + "\n")
    assert found, f"expected a table with the header {header!r}"
    lines = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines()[1:])
    return [[cell.strip().strip("`") for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_two_lines_of_the_readme_are_what_continuous_integration_looks_for() -> None:
    assert [line for line in README.splitlines() if line in LINES] == list(LINES)


def test_the_table_of_commands_names_every_command_and_no_other() -> None:
    named = set(re.findall(r"^\| `python -m runners\.(\w+)", COMMANDS, re.MULTILINE))
    assert named == set(runners_main.COMMANDS)


def test_protocol_numbers_are_those_in_use() -> None:
    table = rows(CONVENTIONS, "| rule | CUDA | CPU | meaning |")
    said = {name: (float(cuda), float(cpu)) for name, cuda, cpu, _ in table}
    assert set(said) == set(vars(CUDA_PROTOCOL)) - {"passes", "interval_rule"}, "words are no numbers"
    assert {CUDA_PROTOCOL.interval_rule, CPU_PROTOCOL.interval_rule} == {BATCHES}
    assert f"By the rule `{BATCHES}`" in CONVENTIONS
    assert said == {name: (getattr(CUDA_PROTOCOL, name), getattr(CPU_PROTOCOL, name)) for name in said}


def test_precisions_are_those_in_use() -> None:
    table = rows(CONVENTIONS, "| policy | autocast | gradient scaler | float32 products on CUDA | unit |")
    said = {name: (autocast, scaler, "may round" in products, unit) for name, autocast, scaler, products, unit in table}
    used = {
        name: (p.autocast or "–", "yes" if p.scaler else "no", p.tf32, p.convolution_unit)
        for name, p in PRECISIONS.items()
    }
    assert said == used
    assert all(p.convolution_unit == p.matmul_unit for p in PRECISIONS.values())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    """To a file that is there, a picture too, and to a heading of it."""
    for target in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        file, _, heading = target.partition("#")
        if file.startswith("https://"):
            continue
        aim = (document.parent / file).resolve() if file else document
        assert aim.is_file(), f"{document.name}: {target}"
        if heading:
            titles = re.findall(r"^#+ (.*)$", aim.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
            }  # as GitHub makes them
            assert heading in anchors, f"{document.name}: {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_in_backquotes_exist(document: Path) -> None:
    """`room/file.py` is a file of this repository."""
    text = document.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:\.\./)?(?:[a-z_]+/)+[a-z_0-9]+\.(?:py|csv))`", text):
        assert (ROOT / path).is_file() or path.startswith(("cleaned/", "measure/counters/adapters/NAME")), path


def test_what_pip_installs_is_what_the_requirements_say() -> None:
    """setuptools reads no "-r": pyproject.toml names the files that requirements.txt includes."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = re.findall(r"^-r (\S+)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    files = project["tool"]["setuptools"]["dynamic"]["dependencies"]["file"]
    assert sorted(files) == sorted(included)
    assert (ROOT / "requirements.txt").read_text().split() == ["-r", included[0], "-r", included[1]]
    assert not any("-r " in (ROOT / file).read_text() for file in files)
    listed = project["project"]["license-files"]
    assert all((ROOT / name).read_text().lstrip().startswith("Apache License") for name in listed)
