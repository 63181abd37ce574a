"""The figure of a comparison: its legend."""

from __future__ import annotations

from reports.compare import figure


def test_the_legend_says_what_b_is_and_leaves_out_what_is_not_there() -> None:
    verdicts = [verdict for verdict in figure._LOOKS if verdict != figure.UNKNOWN]
    labels = [mark.get_label() for mark in figure._marks({*verdicts[:2], figure.UNKNOWN})]
    assert labels == [*(f"B is {verdict}" for verdict in verdicts[:2]), figure.UNKNOWN]
