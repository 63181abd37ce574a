"""Utilization of published steps against what they could reach at best, and against their FLOP per byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from reports.shared import PAGE_IN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def utilization_and_bound(table: pd.DataFrame, title: str) -> Figure:
    """One dot a row: attainable against reached utilization, by mode. Nothing may lie above the diagonal.

    Draw and render inside `figure_style.theme()`. table: rows of one device with a bound.
    """
    import seaborn as sns
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(PAGE_IN, 0.62 * PAGE_IN), layout="constrained")
    axes = figure.subplots()
    shown = table.assign(
        attainable=100 * table["attainable_ratio"],
        reached=100 * table["utilization_ratio"],
        step=table["mode"].map({"train": "training", "infer": "inference"})
        + table["compiled"].map({True: ", compiled", False: ""}),
    )
    sns.scatterplot(
        shown, x="attainable", y="reached", hue="step", style="step", s=11, linewidth=0, alpha=0.6, ax=axes,
        palette="colorblind",
    )  # fmt: skip
    axes.plot([0, 100], [0, 100], color="0.4", linewidth=0.9)
    axes.text(60, 62, "the bound", rotation=31, rotation_mode="anchor", color="0.3", fontsize=8)
    axes.set(xlim=(0, 100), ylim=(0, 100), title=title)
    axes.set_xlabel("attainable at best, % of the datasheet's peak")
    axes.set_ylabel("reached, % of the datasheet's peak")
    axes.legend(title=None, loc="upper left", frameon=False)
    return figure


def utilization_by_intensity(table: pd.DataFrame, flop_per_byte_of_device: float, title: str) -> Figure:
    """One dot a row: FLOP per byte of its unfused step against reached utilization, with the device's roofline.

    Draw and render inside `figure_style.theme()`. table: rows of one device with `flop_per_byte`.
    flop_per_byte_of_device: its peak ÷ its bandwidth, where the roofline bends.
    """
    import numpy as np
    import seaborn as sns
    from matplotlib.figure import Figure as Canvas

    figure = Canvas(figsize=(PAGE_IN, 0.62 * PAGE_IN), layout="constrained")
    axes = figure.subplots()
    shown = table.assign(
        reached=100 * table["utilization_ratio"], step=table["mode"].map({"train": "training", "infer": "inference"})
    )
    sns.scatterplot(
        shown, x="flop_per_byte", y="reached", hue="step", style="step", s=11, linewidth=0, alpha=0.6, ax=axes,
        palette="colorblind",
    )  # fmt: skip
    low, high = table["flop_per_byte"].min() * 0.8, table["flop_per_byte"].max() * 1.25
    line = np.geomspace(low, high, 200)
    axes.plot(line, 100 * np.minimum(1.0, line / flop_per_byte_of_device), color="0.4", linewidth=0.9)
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(None, 200), title=title)
    axes.annotate(
        "the roofline of the datasheet", (high, 100), xytext=(-6, 3), textcoords="offset points", ha="right",
        va="bottom", color="0.3", fontsize=8,
    )  # fmt: skip
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel("FLOP per byte, each operation reading and writing alone")
    axes.set_ylabel("reached, % of the datasheet's peak")
    axes.legend(title=None, loc="lower right", frameon=False)
    return figure
