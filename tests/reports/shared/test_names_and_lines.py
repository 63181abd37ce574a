"""Near names and broken words, which every error and every table of the terminal is made with."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest

from reports.shared.layout import csv_of, page, table_of
from reports.shared.numbers import cell_name, own_lines, shared_variant
from results.digests import hashed
from results.errors import one_line
from results.library_words import NUMPY, SIZES, VALUES, depends_on_data
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


def test_rows_as_csv_have_no_formula_and_no_null() -> None:
    rows = [
        {"name": "=HYPERLINK(1)", "right": True, "at": [1, 2], "value": None},
        {"name": "a,b", "right": 0.1, "at": -1, "value": ""},
    ]
    assert csv_of(rows) == 'name,right,at,value\n\'=HYPERLINK(1),true,"[1,2]",\n"a,b",0.1,-1,\n'
    assert csv_of([]) == ""


def test_a_part_that_all_cells_share_is_in_no_cells_name() -> None:
    variants = (
        "layout=channels_last, image_size=96, lr=1",
        "image_size=96",
        "compile=true, image_size=96, inputs=2, 3",
    )
    views: Any = [
        SimpleNamespace(
            run=SimpleNamespace(model="net", batch_size=4, precision="fp32", repeat=0),
            variant=variant,
        )
        for variant in variants
    ]
    shared = shared_variant(views)
    assert shared == "image_size=96"
    assert [cell_name(view, shared) for view in views] == [
        "net b4 fp32, layout=channels_last, lr=1",
        "net b4 fp32",
        "net b4 fp32, compile=true, inputs=2, 3",
    ]
    assert [own_lines(view, shared) for view in views] == [["channels_last", "lr=1"], [], ["compile", "inputs=2, 3"]]
    assert shared_variant(views[:1]) == variants[0]
    assert shared_variant([]) == ""


@pytest.mark.parametrize(
    ("text", "longest", "shown"),
    [
        ("two  words\n", 9, "two words"),
        ("four words of text", 12, "four words …"),
        ("aaa bbbbbbbbbbbbbbbbbb", 10, "aaa bbbbb…"),  # what stays is less than half: the word is cut
        ("aaaa bbbbbbbbbbbbbbbbb", 8, "aaaa …"),
    ],
)
def test_one_line_is_cut_between_words_or_in_a_long_one(text: str, longest: int, shown: str) -> None:
    assert one_line(text, longest) == shown
    assert len(shown) <= longest


def test_a_digest_has_16_digits_and_is_one_for_both_forms_of_a_uuid() -> None:
    expected = hashlib.sha256(b"1b2c-ff").hexdigest()[:16]
    assert hashed("GPU-1B2C-ff") == hashed("1b2c-FF") == expected


def test_plain_words_say_whether_a_model_depends_on_its_data() -> None:
    assert all(depends_on_data(f"resnet: {words}.") for words in (VALUES, SIZES, NUMPY))
    assert not depends_on_data("the file is not there")
