"""Generated pages: docs/api.md is what the docstrings say now."""

import importlib

import pytest

import flopledger
from benchmarks.pages.api import MODULES, PAGE, page


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.pages.api --write"


def test_each_public_name_has_a_section_with_its_text():
    text = page()
    for module in MODULES:
        for name in importlib.import_module(module).__all__:
            assert f"\n### {name}\n\n" in text
            section = text.partition(f"\n### {name}\n\n")[2].partition("\n### ")[0]
            assert len(section.replace("```", "")) > 40


def test_arguments_errors_and_examples_are_on_the_page():
    section = page().partition("\n### count\n\n")[2].partition("\n### ")[0]
    assert "    *,\n    kwargs: Mapping[str, Any] | None = None,\n" in section
    assert "Raises ValueError" in section
    assert "```pycon\n>>> import torch, flopledger\n" in section


@pytest.mark.parametrize(
    ("module", "name", "now"),
    [
        ("measure.step_profile", "profile_step", flopledger.profile_step),
        ("measure.counters.fixes", "flop_counter_mode", flopledger.flop_counter_mode),
        ("reports.profile_tree", "tree_text", importlib.import_module("reports.profile.tree").tree_text),
    ],
)
def test_an_import_path_of_before_warns_and_gives_the_same_function(module, name, now):
    with pytest.warns(FutureWarning, match=f"{module} goes in the next version: use "):
        old = importlib.import_module(module)
    assert getattr(old, name) is now
