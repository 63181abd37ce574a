"""Names from the files of others do not reach a terminal as commands."""

from __future__ import annotations

import io

from reports.shared.layout import columns
from runners.cli.progress import Progress

NAME = "\x1b]0;owned\x07gpu\u202etxt"
SHOWN = "\\x1b]0;owned\\x07gpu\\u202etxt"


def test_columns_and_sentences_hold_no_commands():
    assert columns([[NAME, "1"], ["b", "2"]], left=[0]) == [f"{SHOWN}  1", f"b{' ' * (len(SHOWN) - 1)}  2"]


def test_progress_holds_none():
    stream = io.StringIO()
    Progress(1, stream).say(f"the device {NAME}")
    assert stream.getvalue() == f"the device {SHOWN}\n"
