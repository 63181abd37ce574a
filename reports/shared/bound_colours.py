"""How a bound looks wherever it is drawn: one colour each, distinguished by colour-blind readers, and one word."""

from __future__ import annotations

from collections.abc import Mapping

COLOURS: Mapping[str, str] = {
    "arithmetic": "#0173b2",
    "memory": "#de8f05",
    "launch": "#029e73",
    "host": "#cc78bc",
    "between": "#b9bec4",
    "": "#8a929a",
}
"""Bound → colour; "between": no operation ran; "": not known."""

WORDS: Mapping[str, str] = {
    "arithmetic": "arithmetic: its unit calculates",
    "memory": "memory: numbers come and go",
    "launch": "launch: too small for the device",
    "host": "host: waits to be started",
    "between": "between operations",
    "": "not known",
}
