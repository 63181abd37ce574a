"""Makes foreign text fit for a terminal: `printable` escapes control characters, `wrap` returns lines of a given width.

`wrap` breaks a word longer than a line, such as a path or a list without spaces, after a separator. A part without a
separator is cut where it does not fit.
"""

import re
import unicodedata

_STEERS = re.compile(
    "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ufeff\\ud800-\\udfff]"
)
"""Direction marks, surrogates, and control characters other than line ends and tabs."""

LONGEST_TEXT = 10_000
"""Maximum number of characters of a text that are shown: foreign names may have millions."""


def printable(text: str) -> str:
    """Escape characters that control a terminal or change the direction of text: foreign names may hold them. Line ends
    and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _STEERS.sub(lambda match: ("\\x%02x" if ord(match[0]) < 256 else "\\u%04x") % ord(match[0]), text)


def shortened(text: str, most: int) -> str:
    """Return the text, or the two ends of a text longer than `most` characters with the number left out between."""
    left_out = len(text) - most
    if left_out <= 0:
        return text
    half = most // 2
    return f"{text[:half]} … {left_out} characters … {text[-half:]}"


_PIECES = re.compile(r"[^/_.,:;=&?|×+-]*[/_.,:;=&?|×+-]+|[^/_.,:;=&?|×+-]+")
"""Parts of a long word, each with the separators at its end."""

LEAST_PIECE = 8
"""Smallest result of `least_width` for a text whose longest word has at least as many letters."""


def letters(text: str) -> int:
    """Return how many columns of a terminal a text takes: two for a wide letter, none for a combining one."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) != 0 for letter in text)


def wrap(text: str, width: int, first: str = "", rest: str = "") -> list[str]:
    """Wrap to lines of at most `width` letters. first, rest: prefixes of the first and of each further line.

    Line ends in the text stay; control characters are escaped, and a very long text is shortened. An empty text gives
    [`first`], or [] if `first` is blank.
    """
    lines: list[str] = []
    for paragraph in printable(shortened(text, LONGEST_TEXT)).splitlines():
        lines += _wrapped(paragraph, width, rest if lines else first, rest)
    return lines or ([first.rstrip()] if first.strip() else [])


def _wrapped(paragraph: str, width: int, first: str, rest: str) -> list[str]:
    lines, line, empty, taken = [], first, True, letters(first)
    for word in paragraph.split():
        more = letters(word) + (0 if empty else 1)
        if taken + more <= width:
            line, empty, taken = line + ("" if empty else " ") + word, False, taken + more
            continue
        if not empty:
            lines.append(line)
            line = rest
        *whole, word = pieces(word, max(1, width - letters(line)), max(1, width - letters(rest)))
        for piece in whole:
            lines.append(line + piece)
            line = rest
        line, empty, taken = line + word, False, letters(line + word)
    return [text.rstrip() for text in (*lines, line)]


def pieces(word: str, width: int, further: int | None = None) -> list[str]:
    """Return the parts of a word, each of at most `width` letters, broken after separators where it has any.

    further: maximum letters of each part after the first; None: `width`.
    """
    room, further = width, width if further is None else further
    broken, part = [], ""
    for piece in _PIECES.findall(word) if letters(word) > width else [word]:
        if part and letters(part + piece) > room:
            broken.append(part)
            part, room = "", further
        while letters(piece) > room:
            cut = _cut(piece, room)
            broken.append(piece[:cut])
            piece, room = piece[cut:], further
        part += piece
    return [*broken, part] if part or not broken else broken


def _cut(text: str, room: int) -> int:
    """Return how many leading characters of the text fit into `room` letters, at least one."""
    taken = 0
    for index, letter in enumerate(text):
        taken += letters(letter)
        if taken > room:
            return max(1, index)
    return len(text)


def least_width(text: str) -> int:
    """Return the letters of the longest word, or of the longest part where words are broken at separators."""
    words = text.split()
    parts = [piece for word in words for piece in _PIECES.findall(word)]
    return min(max(map(letters, words), default=0), max(LEAST_PIECE, max(map(letters, parts), default=0)))
