"""Definition: the number that a cell of a page is sorted by, how unsafe characters appear, and which script may run."""

import base64
import hashlib
import re

import pytest

from reports.shared.html import TEMPLATES, PageTable, PageVerdict, Section, document, sort_value, visible_text

# --- tables --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("8.00 s\n7.84 s to 8.16 s", "8"),
        ("412 µs", "0.000412"),
        ("38.1 ms", "0.0381"),
        ("3.60 GFLOP", "3600000000"),
        ("1.00 PFLOP/s\nsheet", "1e+15"),
        ("−52.3 MFLOP", "-52300000"),
        ("+1.62 GFLOP", "1620000000"),
        ("5.00 %\n4.90 to 5.10", "5"),
        ("100 sheet", "100"),  # no seconds
        ("20 + 20", "20"),
        ("0.9000 to 1.200", "0.9"),
        ("150 GB", "150000000000"),
        ("<0.001", "0.001"),
        ("–", ""),
        ("out of memory", ""),
        ("", ""),
    ],
)
def test_a_cell_is_sorted_by_the_number_that_it_begins_with(text: str, value: str) -> None:
    assert sort_value(text) == value


def test_a_table_of_more_rows_than_a_page_shows_says_how_many_there_are() -> None:
    table = PageTable("All.", ("name",), tuple((f"n{number}",) for number in range(1_002)))
    whole = document("t", PageVerdict("s"), [Section("x", "X", (table,))])
    assert "All. (the first 1,000 of 1,002 rows)" in whole
    assert re.findall(r"\bn\d+\b", whole) == [f"n{number}" for number in range(1_000)]


# --- text ----------------------------------------------------------------------------------------------------------


def test_what_turns_the_text_after_it_or_cannot_be_seen_is_written_by_its_number() -> None:
    assert visible_text("\u202egnp.exe\u202c\x00\u200e") == r"\u202egnp.exe\u202c\x00\u200e"
    assert visible_text("שלום\tlines\nstay") == "שלום\tlines\nstay"
    assert visible_text(7) == 7
    assert "990000 characters" in visible_text("n" * 1_000_000)
    table = PageTable("\u2067c", ("name",), (("\u202ea",),), frozenset(("name",)))
    whole = document("\u202dt", PageVerdict("s\u2066"), [Section("x", "X", ("\u2068", table, ("\u202b",)))])
    assert not set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069") & set(whole)


def test_only_our_script_may_run() -> None:
    whole = document("t", PageVerdict("s"), [])
    script = re.findall(r"<script>(.*?)</script>", whole, re.DOTALL)
    assert script == [(TEMPLATES / "tables.js").read_text(encoding="utf-8")]
    digest = base64.b64encode(hashlib.sha256(script[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in whole
    assert "default-src 'none'" in whole
