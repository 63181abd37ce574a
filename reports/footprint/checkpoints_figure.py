"""What checkpointing would bring a step, as a picture: its peak over the FLOP that are done again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.formula.algebra.constraints import amount
from reports.footprint.text import FootprintAnswer
from reports.footprint.timeline_figure import SCALES
from reports.shared.figure_style import PAGE_IN

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def curve(answer: FootprintAnswer) -> Figure:
    """The picture: a choice a point; the steps between them are what no choice that was found is below.

    With a memory, what of it a step may take, where that is in sight. Raises ValueError for an answer without choices.
    """
    import matplotlib.pyplot as plt
    import seaborn as sns

    if answer.checkpoints is None:
        raise ValueError("expected an answer with checkpoints")
    choices = answer.checkpoints.choices
    scale, unit = next(each for each in SCALES if choices[0].peak_bytes >= each[0] or each[0] == 1)
    peaks = [each.peak_bytes / scale for each in choices]
    again = [100 * each.recomputed_ratio for each in choices]
    right = 1.12 * max(again) or 1.0
    palette = sns.color_palette("colorblind")
    figure, axes = plt.subplots(figsize=(PAGE_IN, 3.2), layout="constrained")
    axes.plot([*again, right], [*peaks, peaks[-1]], drawstyle="steps-post", color=palette[0], linewidth=1)
    axes.plot(again, peaks, "o", color=palette[0], markersize=4, clip_on=False)
    for place in {0, len(choices) - 1}:
        axes.annotate(
            amount(choices[place].peak_bytes, "B"), (again[place], peaks[place]), xytext=(6, 5),
            textcoords="offset points", fontsize=8,
        )  # fmt: skip
    top = 1.15 * max(peaks)
    if answer.fitted is not None and answer.fitted.fit.available_bytes / scale < top:
        room = answer.fitted.fit.available_bytes / scale
        axes.axhline(room, color="0.35", linewidth=0.8, linestyle="--")
        axes.annotate("left of the memory after the margin", (right, room), xytext=(-4, 3), ha="right", fontsize=8,
                      textcoords="offset points", color="0.25")  # fmt: skip
    axes.set(xlim=(0, right), ylim=(0, top), ylabel=f"peak of live bytes, {unit}")
    axes.set_xlabel("FLOP done again, % of the forward pass")
    axes.set_title(f"{answer.model}, batch {answer.batch_size}, {answer.precision}, optimizer {answer.optimizer}")
    plt.close(figure)
    return figure
