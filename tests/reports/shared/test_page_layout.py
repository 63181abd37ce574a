"""Law, definition: a table fits each width and no word is lost; rows as CSV, digests, and lines that are cut."""

import hashlib
import random
import re

import pytest

from reports.shared.layout import HangingIndent, StyledText, TableColumn, TextTable, csv_of, page, strong
from results.errors import one_line
from results.printable import pieces
from results.text_files import hashed

WORDS = ("of", "step", "takes", "while", "memory", "waits", "arithmetic", "unavailable", "utilization")


def texts(seed: int, count: int) -> str:
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))


def table(seed: int) -> TextTable:
    """Three columns of numbers, two of words."""
    chosen = random.Random(seed)
    columns = [
        TableColumn("model name", wraps=True),
        TableColumn("used"),
        TableColumn("step time", rank=1),
        TableColumn("items/s", rank=2),
        TableColumn("what bounds it", wraps=True),
    ]
    rows = [
        [f"net_{chosen.randrange(10**6)}_v{each}", f"{chosen.random() * 100:.1f} %", f"{chosen.randrange(9999)} ms",
         f"{chosen.random():.3f}", StyledText(texts(seed + each, chosen.randrange(1, 12)), "red")]
        for each in range(chosen.randrange(1, 8))
    ]  # fmt: skip
    return TextTable(columns, rows)


@pytest.mark.parametrize("width", [30, 45, 60, 80, 100, 160])
@pytest.mark.parametrize("seed", range(12))
def test_no_line_is_longer_and_no_word_is_broken(seed: int, width: int) -> None:
    parts = [
        strong(texts(seed, 20)),
        "",
        table(seed),
        "",
        HangingIndent("label:", texts(seed + 1, 30)),
        texts(seed, 40),
    ]
    shown = page(parts, width)
    assert max(map(len, shown.splitlines())) <= width
    known = set(page(parts, 10_000).split())
    assert {word for word in shown.split() if re.fullmatch("[a-z]+", word)} <= known | {"left", "out", "for", "want"}


def test_rows_as_csv_have_no_formula_and_no_null() -> None:
    rows = [
        {"name": "=HYPERLINK(1)", "right": True, "at": [1, 2], "value": None},
        {"name": "a,b", "right": 0.1, "at": -1, "value": ""},
    ]
    assert csv_of(rows) == 'name,right,at,value\n\'=HYPERLINK(1),true,"[1,2]",\n"a,b",0.1,-1,\n'
    assert csv_of([]) == ""


def test_a_digest_has_16_digits_and_is_one_for_both_forms_of_a_uuid() -> None:
    expected = hashlib.sha256(b"1b2c-ff").hexdigest()[:16]
    assert hashed("GPU-1B2C-ff") == hashed("1b2c-FF") == expected


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
