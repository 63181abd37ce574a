"""Law, definition: headline.csv of a published run has one row for each cell, with the numbers of the terminal."""

import io
import re
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from cleaning.reconcile.derived import Built
from cleaning.reconcile.run import build
from reports.shared.layout import to_csv
from reports.shared.numbers import percent
from reports.sweep.headline import headline_rows
from reports.sweep.table import to_text
from results.records.answers import Headline
from results.store.reading import read_run
from results.store.store import read_operations, read_profile

RUN = Path(__file__).parents[3] / "results" / "published" / "amd-epyc-2-cores-2026-11-29"


@pytest.fixture(scope="module")
def built() -> Built:
    data = read_run(RUN)
    return build(data, lambda trace_id: read_operations(RUN, trace_id)[0], partial(read_profile, RUN))


@pytest.fixture(scope="module")
def frame(built: Built) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(to_csv(headline_rows(built), Headline)))


def test_there_is_one_row_for_each_cell_of_the_run(frame: pd.DataFrame) -> None:
    runs = pd.read_csv(RUN / "runs.csv")
    assert Counter(frame["cell_id"]) == Counter(runs["cell_id"].unique())
    assert not frame["utilization_ratio"].isna().any(), "all cells of this run were measured"


def test_the_numbers_are_those_of_the_terminal(built: Built, frame: pd.DataFrame) -> None:
    text = to_text(built)
    row = frame.query("model == 'resnet18' and batch_size == 4").iloc[0]
    line = next(line for line in text.splitlines() if re.match(r"resnet18 +4 ", line))
    assert f"{1e3 * row['step_time_s']:.0f}" in line.split()
    assert f"{100 * row['utilization_ratio']:.0f}" in line or f"{100 * row['utilization_ratio']:.1f}" in line
    half = (row["utilization_high_ratio"] - row["utilization_low_ratio"]) / (2 * row["utilization_ratio"])
    assert percent(half) in line, "the table's ±"
    assert row["utilization_low_ratio"] < row["utilization_ratio"] < row["utilization_high_ratio"]
    assert row["achieved_flop_per_s"] / row["peak_flop_per_s"] == pytest.approx(row["utilization_ratio"])
    assert row["model_flop"] / row["step_time_s"] == pytest.approx(row["achieved_flop_per_s"])


def test_conventions_of_attention_are_beside_the_dense_count(built: Built) -> None:
    assert "attention" not in to_text(built)
    view = next(view for view in built.views if view.headline is not None)
    fewer = [replace(row, model_flop=100, causal_flop=90, mask_exact_flop=None) for row in view.fractions]
    text = to_text(replace(built, views=(replace(view, fractions=tuple(fewer)),)), width=200)
    assert "attention is counted dense; causal 90 % of that, mask-exact not known" in text
    assert "hardware" not in text
    tiled = [replace(row, hardware_flop=95) for row in fewer]
    text = to_text(replace(built, views=(replace(view, fractions=tuple(tiled)),)), width=200)
    assert "mask-exact not known, hardware 95 % of that" in text
