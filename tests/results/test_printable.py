"""Definition: text of others as a terminal shows it, with control characters written out and long text cut."""

import pytest

from results.printable import letters, printable, shortened


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1 – 3 × 3", "conv1 – 3 × 3"),
        ("\x1b[31mred\x7f", "\\x1b[31mred\\x7f"),
        ("left\u202eright", "left\\u202eright"),
        ("two\n\tlines", "two\n\tlines"),
    ],
)
def test_what_steers_a_terminal_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize(("text", "columns"), [("ae", 2), ("ä", 1), ("a\u0308", 1), ("模型", 4), ("", 0)])
def test_a_wide_letter_takes_two_columns_and_a_combining_one_none(text: str, columns: int) -> None:
    assert letters(text) == columns


def test_a_long_text_keeps_its_two_ends() -> None:
    assert shortened("a" * 6 + "b" * 6, 4) == "aa … 8 characters … bb"
    assert shortened("abcd", 4) == "abcd"
