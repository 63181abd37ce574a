"""Definition: text of others as a terminal shows it, with control characters written out and long text cut."""

import pytest

from results.printable import printable, shortened


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


def test_a_long_text_keeps_its_two_ends() -> None:
    assert shortened("a" * 6 + "b" * 6, 4) == "aa … 8 characters … bb"
    assert shortened("abcd", 4) == "abcd"
