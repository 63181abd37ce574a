"""Near names and broken words, which every error and every table of the terminal is made with."""

from __future__ import annotations

import pytest

from reports.shared.layout import page, table_of
from results.names import nearest
from results.wrapping import pieces, wrap


def test_three_near_names_the_best_first() -> None:
    valid = ["resnet18", "resnet34", "resnet50", "resnet101", "ResNet152", "vgg16"]
    found = nearest("resnet5", valid)
    assert (found[0], len(found)) == ("resnet50", 3), "five look like it"
    assert nearest("resnet5", valid, n=9)[:3] == found
    assert nearest("resnet5", valid, n=1) == ["resnet50"]
    assert nearest("RESNET152", valid)[0] == "ResNet152", "letter case does not count"
    assert nearest("xyz", valid) == []


@pytest.mark.parametrize(
    ("word", "width", "further", "broken"),
    [
        ("short", 10, None, ["short"]),
        ("aaaa/bbbb/cccc", 10, None, ["aaaa/bbbb/", "cccc"]),
        ("aaaa/bbbb/cccc", 5, 10, ["aaaa/", "bbbb/cccc"]),
        ("a" * 25, 10, None, ["a" * 10, "a" * 10, "a" * 5]),
    ],
)
def test_a_word_is_broken_after_separators_and_no_letter_is_lost(
    word: str, width: int, further: int | None, broken: list[str]
) -> None:
    assert pieces(word, width, further) == broken
    assert "".join(broken) == word


def test_a_name_of_a_megabyte_is_shown_by_its_two_ends() -> None:
    name = "a" * 500_000 + "z" * 500_000
    shown = "".join(line.strip() for line in wrap(name, 80))
    assert len(shown) < 11_000
    assert "a…990000characters…z" in shown.replace(" ", "")
    assert len(page([table_of([["name"], [name]])], 100)) < 11_000
