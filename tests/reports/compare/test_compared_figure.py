"""The figure of a comparison: its legend."""

from __future__ import annotations

from reports.compare import page


def test_the_legend_says_what_b_is_and_leaves_out_what_is_not_there() -> None:
    verdicts = [verdict for verdict in page._LOOKS if verdict != page.UNKNOWN]
    labels = [mark.get_label() for mark in page._marks({*verdicts[:2], page.UNKNOWN})]
    assert labels == [*(f"B is {verdict}" for verdict in verdicts[:2]), page.UNKNOWN]
