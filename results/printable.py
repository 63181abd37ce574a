"""Text from the files of others, as a terminal may show it."""

from __future__ import annotations

import re

_STEERS = re.compile(
    "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ufeff\\ud800-\\udfff]"
)
"""Control characters but line ends and tabs, marks of direction, and halves of characters."""

LONGEST_TEXT = 10_000
"""Characters of a text that are shown: names in the files of others may have millions."""


def printable(text: str) -> str:
    """The text with characters that steer a terminal, or turn the direction of what follows, written out: names in the
    files of others may hold them. Line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _STEERS.sub(lambda found: _written_out(found[0]), text)


def _written_out(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def shortened(text: str, most: int) -> str:
    """The text, or where it is longer than `most` characters its two ends and how many were left out between them."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    return f"{text[:half]} … {left_out} characters … {text[-half:]}"
