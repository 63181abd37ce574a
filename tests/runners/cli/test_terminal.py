"""Command: each command as a table of 100 columns with its meaning, as CSV that pipes, and as one JSON document.

Commands run in this process; those that measure show what a made-up worker measured.
"""

import contextlib
import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from runners.__main__ import COMMANDS
from tests.support.fakes.commands import module_of

ROOT = Path(__file__).parents[3]
TRACE = ROOT / "tests" / "data" / "kineto_torch215_stack.json.gz"
H100 = ("--device", "NVIDIA H100 80GB HBM3")

Told = Callable[[str], Any]
"""A format → prints."""


def command(name: str, *arguments: object) -> Told:
    """A command line, in this process."""

    def tell(form: str) -> Any:
        assert import_module(module_of(name)).main([*map(str, arguments), "--format", form]) == 0

    return tell


def report(form: str) -> None:
    from runners.report import show
    from tests.support.made_up import made_up_page

    show(made_up_page.suite(("resnet18", "mobilenet_v2"), (8,), ("fp32",)), form, ROOT)


def ceiling(form: str) -> None:
    from runners import ceiling as ceiling_command
    from tests.support.made_up import made_up_ceilings

    ceiling_command.show(made_up_ceilings.cpu(1), form)


def profile(form: str) -> None:
    from runners import profile as command
    from tests.support.made_up import made_up_profile

    options = command.merged(command.parser().parse_args(["some_model", "--format", form]))
    command.show(made_up_profile.PROFILE, options)


def characterize(form: str) -> None:
    from reports.characterize import analyse
    from runners import characterize as characterize_command
    from tests.support.made_up.made_up_characterization import together

    characterize_command.show(analyse(together()), characterize_command.parser().parse_args(["--format", form]))


@cache
def counted() -> Any:
    """A model's account by two counters, counted once."""
    from runners import count as count_command

    options = count_command.parser().parse_args(["synthetic_matmul", "--batch-size", "2"])
    return count_command.count("synthetic_matmul", options, ("flopledger", "thop"))


def count(form: str) -> None:
    from runners import count as count_command

    count_command.show(counted(), count_command.parser().parse_args(["synthetic_matmul", "--format", form]))


CASES: dict[str, tuple[Told, str]] = {
    "report": (report, r"^At fp32, batch 8, mobilenet_v2 uses 5.7 % of the datasheet peak"),
    "doctor": (command("doctor"), r"^(Fit|Not fit) to measure"),
    "doctor peaks": (command("doctor", "--peaks", "NVIDIA L40S"), r"^Utilization divides by the dense peak"),
    "project": (command("project", "word_lm"), r"^An epoch takes 33,609 days in steps of 117\.8 s, bound by arith"),
    "project paper": (command("project", "--reproduce", "ppopp2019"), r"^142 cells\. = reproduced: 39"),
    "project compute": (
        command("project", "--compute", "--gpu-hours", 300, *H100, "--utilization", "0.2..0.4"),
        r"^in short: training compute [\d.e]+ FLOP \([\d.e]+ to [\d.e]+\)",
    ),
    "trace": (command("trace", TRACE), r"^Totals are of the calls recorded"),
    "formula": (
        command("formula", "synthetic_matmul", "--symbols", "batch"),
        r"^Exact: fitted to the counts",
    ),
    "footprint": (
        command("footprint", "synthetic_matmul", "--fit", "NVIDIA H100 80GB HBM3"),
        r"^The step needs [\d.]+ GiB of tensors",
    ),
    "count": (count, r"unexplained"),
    "characterize": (characterize, r"^Most of a step is spent: net training in D \(60 %\)"),
    "ceiling": (ceiling, r"ceiling"),
    "profile": (profile, r"bound"),
}
"""What is told → (how, a part of the sentence that says what it means)."""

ALL_COLUMNS = {"profile"}
"""Of what a terminal shows as much as fits a pipe gets every column, as docs/architecture.md says."""

OTHERWISE = {"sweep", "reach"}
"""sweep shows what report shows, once it has measured: tests/runners/sweep/end_to_end/test_sweep_command.py. Of reach
the text has another shape than its row: tests/runners/reach."""

WORDS = {"nan", "inf", "-inf", "none", "null", "n/a", "–", "NaT"}
VOCABULARY: dict[str, set[str]] = {}
"""Values that are words of that table."""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], str]:
    """(case, format) → what it prints on stdout, once."""

    @cache
    def output(case: str, form: str) -> str:
        return printed(CASES[case][0], form)

    return output


def printed(tell: Told, form: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        tell(form)
    said = err.getvalue().splitlines()
    assert all(line.startswith(("note: ", "written", "warning: ")) for line in said), said
    return out.getvalue()


def test_every_command_is_here() -> None:
    assert {name.split()[0] for name in CASES} | OTHERWISE == set(COMMANDS)


@pytest.mark.parametrize("case", CASES)
def test_a_table_fits_and_says_what_it_means(case: str, outputs: Callable[[str, str], str]) -> None:
    text = outputs(case, "table")
    assert case in ALL_COLUMNS or [line for line in text.splitlines() if len(line) > 100] == []
    assert "\x1b" not in text, "a pipe gets no colours"
    assert not [line for line in text.splitlines() if line != line.rstrip()]
    assert re.search(CASES[case][1], text, re.MULTILINE)


@pytest.mark.parametrize("case", CASES)
def test_csv_pipes(case: str, outputs: Callable[[str, str], str]) -> None:
    text = outputs(case, "csv")
    header, *rows = csv.reader(io.StringIO(text))
    assert rows
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in header), header
    assert len(set(header)) == len(header)
    assert {len(row) for row in rows} == {len(header)}
    assert not {value for row in rows for value in row} & (WORDS - VOCABULARY.get(case, set()))
    assert pd.read_csv(io.StringIO(text)).shape == (len(rows), len(header))


@pytest.mark.parametrize("case", CASES)
def test_json_is_one_document_of_the_same_numbers(case: str, outputs: Callable[[str, str], str]) -> None:
    document = json.loads(outputs(case, "json"), parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    leaves = list(_leaves(document))
    assert not {leaf for leaf in leaves if isinstance(leaf, str)} & (WORDS - VOCABULARY.get(case, set()))
    if case in APART:
        return
    known = {float(leaf) for leaf in leaves if leaf is not None and _is(leaf)}  # a module may be called "3"
    told = {
        float(value) for row in list(csv.reader(io.StringIO(outputs(case, "csv"))))[1:] for value in row if _is(value)
    }
    assert sorted(told - known) == []


APART = {"trace", "characterize"}
"""CSV has rows there that JSON adds up."""


def _is(text: Any) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _leaves(document: Any) -> Iterator[Any]:
    if isinstance(document, dict | list):
        for each in document.values() if isinstance(document, dict) else document:
            yield from _leaves(each)
    else:
        yield document
