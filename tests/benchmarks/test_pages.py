"""Generated pages: docs/api.md is what the docstrings say now."""

import importlib

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
