"""Figures of projections: learning curves, what grows with the parameters, sub-batches, data parallelism, rooflines.

Lines are exact formulas, dashes the first-order laws fitted to them, stars where the target is. Nothing in them was
measured, and they say so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.project import domain as domains
from analysis.project import frontier, ppopp2019, ppopp2019_case_study
from analysis.project import learning_curves as frontier_learning_curves
from analysis.project.accelerator import Accelerator, SubBatches
from analysis.project.domain import Domain, Formulas, shipped_formulas
from reports.shared import figure_panels, figure_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GREY = "0.45"
GROWN = ("FLOP a sample and step", "bytes a step", "FLOP a byte", "footprint, bytes")
MARKERS = "osD^v"

ROOM = 0.14
"""A region narrower than this share of its panel has no room for its name."""

LEAST_PARAMETERS = 1e6
"""Models smaller than this are not drawn."""

SKETCH = frontier_learning_curves.LearningCurve(alpha=60.0, beta_g=-0.3, floor=0.25, guess=6.0)
"""A made-up curve that shows all three regions."""

Subjects = Sequence[tuple[Domain, Formulas]]


def paper_pictures() -> dict[str, bytes]:
    """File name → picture: all figures of the five domains on the paper's target, and of its case study."""
    target = ppopp2019.target_of(ppopp2019.inputs("ppopp2019"))
    found = [(domain, shipped_formulas()[domain.model]) for domain in map(domains.shipped, domains.shipped_names())]

    def figures() -> Mapping[str, Figure]:
        return {
            "learning_curves": learning_curves([domain for domain, _ in found], sketch=True),
            "growth": growth(found, target),
            "sub_batch": sub_batch(*found[0], target, word_lm=True),
            "data_parallel": data_parallel(target),
            "roofline": roofline(found, target),
        }

    return figure_style.render_all(figures)


def of_domain(domain: Domain, formulas: Formulas, target: Accelerator) -> dict[str, bytes]:
    """Name → picture of one domain, without the case study."""

    def figures() -> Mapping[str, Figure]:
        subject = [(domain, formulas)]
        made = {
            "growth": growth(subject, target),
            "sub_batch": sub_batch(domain, formulas, target),
            "roofline": roofline(subject, target),
        }
        return {"learning_curve": learning_curves([domain]), **made} if "alpha" in domain.numbers else made

    return figure_style.render_all(figures)


def learning_curves(domains: Sequence[Domain], sketch: bool = False) -> Figure:
    """A panel a domain: the curve, its regions, where it is and where it is to go."""
    figure, panels, spare = _grid(len(domains) + sketch, 3, 2.3)
    if sketch:
        _curve(panels[0], SKETCH, "a sketch of the three regions", "", (1e1, 1e10))
    for axes, domain in zip(panels[int(sketch) :], domains, strict=False):
        values = domain.values()
        curve = frontier_learning_curves.LearningCurve(
            values["alpha"], values["beta_g"], values["floor"], values["guess"]
        )
        data = frontier.data_needed(values)[1]
        first = max(1.0, curve.edges()[0] / 3000)
        _curve(axes, curve, domain.name, domain.error_unit, (first, data * 30))
        if "error_now" in values and "data_now" in values:
            axes.plot(values["data_now"], values["error_now"], "o", color="0.1", label="today")
        axes.plot(data, values["error_target"], "*", color="C3", markersize=9, label="target")
        axes.set_xlabel(f"data, {domain.data_unit}s")
        axes.legend(loc="lower left")
    figure_panels.plain(panels, spare)
    return figure


def growth(subjects: Subjects, target: Accelerator) -> Figure:
    """FLOP, bytes, intensity and footprint against parameters, as figures 7 to 10 of the paper."""
    figure, panels, _ = _grid(4, 2, 2.7)
    looks = _looks([domain.name for domain, _ in subjects])
    for domain, formulas in subjects:
        colour, label = looks[domain.name][0], f"{domain.name}, {domain.sub_batch} a step"
        sizes, exact, by_law = _width_sweep(domain, formulas, target)
        for axes, line, law in zip(panels, exact, by_law, strict=True):
            axes.plot(sizes, line, color=colour, label=label)
            axes.plot(sizes, law, color=colour, linestyle=(0, (3, 2)), linewidth=0.9)
            axes.plot(sizes[-1:], line[-1:], "*", color=colour, markersize=9)
    for axes, title in zip(panels, GROWN, strict=True):
        axes.set(xscale="log", yscale="log", title=title, xlabel="parameters")
    _numbers(panels[GROWN.index("FLOP a byte")])
    panels[0].legend(loc="upper left", fontsize=6.5)
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("exact formula", {}),
        ("first-order law", {"linestyle": (0, (3, 2)), "linewidth": 0.9}),
        ("at the target error", {"marker": "*", "linestyle": ""}),
    )
    shown = [panels[3].plot([], [], color=GREY, label=words, **look)[0] for words, look in kinds]
    panels[3].legend(handles=shown, loc="upper left", fontsize=6.5)
    figure_panels.plain(panels)
    return figure


def _width_sweep(
    domain: Domain, formulas: Formulas, target: Accelerator
) -> tuple[list[float], list[list[float]], list[list[float]]]:
    """Parameters of widths up to the projected one; what each of `GROWN` is there, exactly and by the fitted laws."""
    top, batch = frontier.project(domain, formulas, target).grown, domain.sub_batch
    widths = sorted({max(2, round(top * 2 ** (-step / 2))) for step in range(17)})
    costs = [frontier.cost_of(domain, formulas, target, width) for width in widths]
    costs = [cost for cost in costs if cost["parameters"] >= LEAST_PARAMETERS] or costs
    laws = frontier.fit_sweep(domain, formulas, target, top).laws
    sizes = [cost["parameters"] for cost in costs]
    exact = [(c["flop"] / batch, c["moved_bytes"], c["flop"] / c["moved_bytes"], c["footprint_bytes"]) for c in costs]
    by_law = [
        (laws.gamma * p, laws.moved_bytes(p, batch), laws.intensity(p, batch), (laws.delta or math.nan) * p)
        for p in sizes
    ]
    return sizes, [list(line) for line in zip(*exact, strict=True)], [list(line) for line in zip(*by_law, strict=True)]


def sub_batch(domain: Domain, formulas: Formulas, target: Accelerator, word_lm: bool = False) -> Figure:
    """Intensity and time a sample over the sub-batch, as figure 11 of the paper.

    word_lm: the domain is the paper's word model, whose operations have a roofline each, too.
    """
    grown = frontier.project(domain, formulas, target).grown
    sizes = sorted({round(2 ** (power / 4)) for power in range(81)})
    costs = [frontier.cost_of(domain, formulas, target, grown, size) for size in sizes]
    steps = [
        target.step(cost["flop"], cost["moved_bytes"]).time_s / size for cost, size in zip(costs, sizes, strict=True)
    ]
    figure, (above, below), _ = _grid(2, 1, 2.2)
    above.plot(sizes, [cost["flop"] / cost["moved_bytes"] for cost in costs], color="C0")
    above.axhline(target.ridge, color=GREY, linestyle=(0, (4, 3)), linewidth=0.9)
    above.annotate("achievable ridge point", (sizes[-1], target.ridge), (0, 3), **_words("right"))
    below.plot(sizes, steps, color="C0", label="roofline of the whole step")
    if word_lm:
        models = [ppopp2019_case_study.plain_model({domain.model: formulas}, grown, size) for size in sizes]
        apart = [model.step_s(target, None) / model.batch for model in models]
        below.plot(sizes, apart, color="C1", label="each operation at its own")
        below.legend(loc="upper right")
    _marked(above, below, domain.sub_batch, frontier.batches(domain, formulas, target, grown), sizes[-1])
    above.set(xscale="log", yscale="log", ylabel="FLOP a byte", title=f"{domain.name}, {domain.grows} {grown:,}")
    below.set(xscale="log", yscale="log", ylabel="seconds a sample", xlabel="sub-batch")
    figure_panels.plain([above, below])
    return figure


def _marked(above: Axes, below: Axes, chosen: int, sub_batches: SubBatches, most: int) -> None:
    """Sub-batches of interest as lines through both panels, named in the upper one."""
    marks = (
        ("ridge", sub_batches.ridge, "C2"),
        ("95 % of the limit", sub_batches.saturated, "C4"),
        ("chosen", chosen, "C3"),
    )
    for row, (name, size, colour) in enumerate(marks):
        if size:
            for axes in (above, below):
                axes.axvline(size, color=colour, linewidth=0.9)
            left = size < most**0.5
            look = _words("left" if left else "right", "axes")
            above.annotate(f"{name}: {size:,}", (size, 0.03 + 0.08 * row), (3 if left else -3, 0), color=colour, **look)


def data_parallel(target: Accelerator) -> Figure:
    """Days of an epoch and utilization over workers, as figure 12 of the paper."""
    given, assumed = ppopp2019.inputs("ppopp2019"), ppopp2019.assumptions("ppopp2019")
    model = ppopp2019_case_study.model_of(given, assumed, shipped_formulas())
    samples = ppopp2019.samples_of(ppopp2019.ROWS[0], given, assumed) or math.nan
    workers = [2**power for power in range(15)]
    steps = [ppopp2019_case_study.data_parallel_s(model, target, count, assumed) for count in workers]
    days = [samples / model.batch / n * step / frontier.DAY_S for n, step in zip(workers, steps, strict=True)]
    shares = [100 * model.flop() / step / target.peak_flop_per_s for step in steps]
    figure, (above, below), _ = _grid(2, 1, 2.0)
    for axes, values in ((above, days), (below, shares)):
        axes.plot(workers, values, "o-", color="C0", markersize=3)
        for row in ("data parallel 1", "data parallel 2"):
            axes.axvline(given("Table 5", row, "workers"), color=GREY, linestyle=(0, (4, 3)), linewidth=0.8)
    above.axhline(given("Section 6", "case study", "days wanted"), color="C3", linewidth=0.8)
    above.annotate("a week", (1, given("Section 6", "case study", "days wanted")), (0, 3), color="C3", **_words("left"))
    above.set(xscale="log", yscale="log", ylabel="days of an epoch", title="word model with projection, sub-batch 128")
    below.set(xscale="log", ylabel="utilization, %", xlabel="workers", ylim=(0, None))
    below.annotate("512 and 1,024", (1024, 0.06), (4, 0), xycoords=("data", "axes fraction"), **_words("left", ""))
    figure_panels.plain([above, below])
    return figure


def roofline(subjects: Subjects, target: Accelerator) -> Figure:
    """Where each domain is under the roof, at its sub-batch and size."""
    figure, (axes,), _ = _grid(1, 1, 3.4)
    span = (0.5, 1000.0)
    for share, style_, words in (
        (1.0, "-", "sheet"),
        (None, (0, (4, 3)), f"{target.compute_ratio:g} and {target.memory_ratio:g} of it"),
    ):
        memory = target.bandwidth_bytes_per_s if share else target.bytes_per_s
        peak = target.peak_flop_per_s if share else target.flop_per_s
        corners = [span[0], peak / memory, span[1]]
        axes.plot(corners, [min(peak, memory * x) for x in corners], color=GREY, linestyle=style_, label=words)
    looks = _looks([domain.name for domain, _ in subjects])
    for domain, formulas in subjects:
        projected = frontier.project(domain, formulas, target)
        rate = projected.flop / projected.step_s
        colour, marker = looks[domain.name]
        axes.plot(projected.intensity, rate, marker, color=colour, label=domain.name)
        axes.plot([projected.intensity] * 2, [0, rate], color=colour, linewidth=0.7)
    axes.set(xscale="log", yscale="log", xlabel="FLOP a byte of the whole step", ylabel="FLOP/s", xlim=span)
    axes.set(title=f"on {target.name}", ylim=(target.bytes_per_s * span[0] / 1.5, target.peak_flop_per_s * 4))
    axes.legend(loc="upper left", fontsize=7)
    figure_panels.plain([axes])
    return figure


def _curve(
    axes: Axes, curve: frontier_learning_curves.LearningCurve, title: str, unit: str, span: tuple[float, float]
) -> None:
    """A learning curve over so many samples, its regions named above it."""
    points = [span[0] * (span[1] / span[0]) ** (step / 200) for step in range(201)]
    errors = [curve.error(point) for point in points]
    axes.plot(points, errors, color="C0")
    axes.set(xscale="log", yscale="log", ylabel=f"error, {unit}" if unit else "error", xlim=span)
    axes.set_title(title, fontsize=7.5)
    axes.set_ylim(min(errors) / 1.5, max(errors) * (max(errors) / min(errors)) ** 0.25)
    _numbers(axes)
    edges = (span[0], *(min(max(edge, span[0]), span[1]) for edge in curve.edges()), span[1])
    for name, shade, low, high in zip(
        frontier_learning_curves.REGIONS, ("0.9", "1.0", "0.9"), edges[:-1], edges[1:], strict=True
    ):
        if high > low * 1.5:
            axes.axvspan(low, high, color=shade, zorder=0, linewidth=0)
            if math.log(high / low) < ROOM * math.log(span[1] / span[0]):
                continue
            words = name.replace(" data", "\ndata")
            axes.annotate(
                words, (math.sqrt(low * high), 0.98), xycoords=("data", "axes fraction"), **_words("center", "")
            )


def _numbers(axes: Axes) -> None:
    """Numbers up the side without powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _looks(names: Sequence[str]) -> dict[str, tuple[Any, str]]:
    """Domain → (colour, marker)."""
    looks = [(figure_style.colour(index), marker) for index, marker in enumerate(MARKERS)]
    return dict(zip(names, itertools.cycle(looks), strict=False))


def _words(align: str, coords: str = "offset") -> dict[str, Any]:
    """How small words stand. coords "axes": at a height that is a share of the panel."""
    look: dict[str, Any] = {"fontsize": 6.5, "ha": align}
    if coords == "axes":
        return look | {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "rotation": 0}
    if coords == "offset":
        return look | {"textcoords": "offset points"}
    return look | {"va": "top"} if align == "center" else look | {"textcoords": "offset points"}


def _grid(panels: int, columns: int, height_in: float) -> tuple[Figure, list[Axes], list[Axes]]:
    return figure_panels.grid(panels, columns, height_in, share_x=False, share_y=False)
