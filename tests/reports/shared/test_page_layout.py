"""A page at every width: no line is longer, no word is broken that has room, numbers end alike, and what is left out is
named."""

from __future__ import annotations

import random
import re

import pytest

from reports.shared.layout import Column, Hanging, Styled, TextTable, page, strong
from results.wrapping import letters, wrap

WORDS = ("of", "step", "takes", "while", "memory", "waits", "arithmetic", "unavailable", "utilization")


def texts(seed: int, count: int) -> str:
    chosen = random.Random(seed)
    return " ".join(chosen.choice(WORDS) for _ in range(count))


def table(seed: int) -> TextTable:
    """Three columns of numbers, two of words."""
    chosen = random.Random(seed)
    columns = [
        Column("model name", wraps=True),
        Column("used"),
        Column("step time", rank=1),
        Column("items/s", rank=2),
        Column("what bounds it", wraps=True),
    ]
    rows = [
        [f"net_{chosen.randrange(10**6)}_v{each}", f"{chosen.random() * 100:.1f} %", f"{chosen.randrange(9999)} ms",
         f"{chosen.random():.3f}", Styled(texts(seed + each, chosen.randrange(1, 12)), "red")]
        for each in range(chosen.randrange(1, 8))
    ]  # fmt: skip
    return TextTable(columns, rows)


@pytest.mark.parametrize("width", [30, 45, 60, 80, 100, 160])
@pytest.mark.parametrize("seed", range(12))
def test_no_line_is_longer_and_no_word_is_broken(seed: int, width: int) -> None:
    parts = [strong(texts(seed, 20)), "", table(seed), "", Hanging("label:", texts(seed + 1, 30)), texts(seed, 40)]
    shown = page(parts, width)
    assert max(map(len, shown.splitlines())) <= width
    known = set(page(parts, 10_000).split())
    assert {word for word in shown.split() if re.fullmatch("[a-z]+", word)} <= known | {"left", "out", "for", "want"}


def test_the_least_important_column_goes_first_and_is_named() -> None:
    columns = [Column("a"), Column("b", rank=2), Column("c", rank=1)]
    one = TextTable(columns, [["x" * 8, "y" * 8, "z" * 8]])
    assert page([one], 28).splitlines()[0].split() == ["a", "b", "c"]
    assert page([one], 20).splitlines()[0].split() == ["a", "c"]
    assert page([one], 20).splitlines()[-2:] == ["(left out for want", " of room: b)"]
    assert page([one], 12).splitlines()[0].split() == ["a"]


def test_words_are_wrapped_before_a_column_is_left_out() -> None:
    one = TextTable([Column("a", rank=1), Column("b", wraps=True, least=10)], [["12", "one two three four"]])
    assert page([one], 14) == " a b\n──────────────\n12 one two\n   three four\n"


def test_numbers_end_alike_and_words_begin_alike() -> None:
    one = TextTable([Column("n"), Column("w")], [["1", "a"], ["1,234 B", "bcd"], ["–", "x"]], rule=False)
    assert page([one]).splitlines() == ["      n  w", "      1  a", "1,234 B  bcd", "      –  x"]


def test_where_no_table_has_room_each_row_is_a_list() -> None:
    one = TextTable([Column("first"), Column("second")], [["a" * 12, "b" * 12], ["c", "d"]])
    assert page([one], 20) == f"first   {'a' * 12}\nsecond  {'b' * 12}\n\nfirst   c\nsecond  d\n"


def test_a_word_longer_than_its_line_is_broken_after_a_separator() -> None:
    assert wrap("see /home/somebody/results/run_17/report.html now", 24) == [
        "see",
        "/home/somebody/results/",
        "run_17/report.html now",
    ]
    assert wrap("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert "".join(wrap("a" * 7 + "/" + "b" * 30, 9)) == "a" * 7 + "/" + "b" * 30


def test_wide_letters_take_two_columns() -> None:
    assert letters("模型") == 4
    lines = page([TextTable([Column("m"), Column("n")], [["模型", "1"], ["abcd", "2"]], rule=False)]).splitlines()
    assert lines[1:] == ["模型  1", "abcd  2"]
    assert all(letters(line) <= 10 for line in wrap("模型" * 12, 10))


def test_colours_are_shown_where_they_are_asked_for_alone() -> None:
    parts = [strong("a"), TextTable([Column("b")], [[Styled("c", "red")]])]
    assert "\x1b" not in page(parts)
    coloured = page(parts, colour=True)
    assert "\x1b[1m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == page(parts)


def test_commands_to_a_terminal_are_written_out() -> None:
    shown = page(["a \x1b[31m", Hanging("l\x07", "b\x1b"), TextTable([Column("h")], [["c\x1b]0;d"]])], colour=False)
    assert "\x1b" not in shown
    assert "\\x1b]0;d" in shown


def test_one_empty_line_between_parts_and_none_at_the_end() -> None:
    assert page(["", "a", "", "", "b", "", TextTable([], []), ""]) == "a\n\nb\n"
    assert page(["  a b c d"], 7) == "  a b c\n    d\n"
