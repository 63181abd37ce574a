"""Singular and plural of an option, over the parsers of all commands."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable

import pytest

from runners.characterize import command as characterize_command
from runners.cli.arguments import PAIRED, Parser, with_own_names
from runners.count import command
from runners.footprint import command as footprint_command
from runners.formula import command as formula_command
from runners.profile import command as profile_command
from runners.sweep import options as sweep_options

MAKERS: dict[str, Callable[[], Parser]] = {
    "sweep": sweep_options.parser,
    "count": command.parser,
    "profile": profile_command.parser,
    "footprint": footprint_command.parser,
    "formula": formula_command.parser,
    "characterize": characterize_command.parser,
    "ceiling": importlib.import_module("runners.ceiling.command")._parser,
}


@pytest.mark.parametrize("command", MAKERS)
def test_every_command_takes_both_forms_of_what_it_takes(command: str) -> None:
    parser = MAKERS[command]()
    options = parser._option_string_actions
    for word in PAIRED:
        if f"--{word}" in options or f"--{word}s" in options:
            for name in (f"--{word}", f"--{word}s"):
                assert with_own_names(parser, [name, "1"])[0] in options
                assert with_own_names(parser, [f"{name}=1"])[0].partition("=")[0] in options


def test_a_sweep_takes_one_model_and_batch_by_their_singular() -> None:
    found = sweep_options.parser().parse_args(
        ["--model", "vgg11", "--batch-size=4", "--precision", "fp32", "--method", "exact"]
    )
    assert (found.models, found.batch_sizes, found.precisions, found.methods) == (
        ("vgg11",), (4,), ("fp32",), ("exact",),
    )  # fmt: skip


def test_a_command_that_takes_models_by_place_takes_them_by_name() -> None:
    found = command.parser().parse_args(["--batch-sizes", "2", "--models", "vgg11,net.py:build", "--counter=exact"])
    assert (found.models, found.batch_size, found.counters) == (["vgg11", "net.py:build"], 2, ("exact",))
    assert profile_command.parser().parse_args(["--model", "vgg11", "--precisions", "fp32"]).model == "vgg11"


def test_an_option_that_has_a_meaning_of_its_own_keeps_it() -> None:
    found = characterize_command.parser().parse_args(
        ["--model", "memnet", "--batch-size", "4", "--batch-sizes", "8,16"]
    )
    assert (found.models, found.batch_size, found.batch_sizes) == (("memnet",), 4, (8, 16))


def test_what_follows_two_dashes_is_no_option() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models")
    assert with_own_names(parser, ["--model", "a", "--", "--model"]) == ["--models", "a", "--", "--model"]


def test_a_model_option_without_a_value_is_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        command.parser().parse_args(["--models"])
    assert left.value.code == 2
    assert "required: MODEL" in capsys.readouterr().err
