"""profile.html: a profiled step in one file that needs no other and no network: why its utilization is what it is, an
icicle of its time, its modules (foldable, sortable), the roofline, operations and fused kernels.

Asks no clock and writes nothing: the same profile gives the same bytes. A short script of its own folds and sorts; the
page's policy admits that script alone, and without it everything is there, unfolded. All text comes through jinja2
with escaping on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.profile.module_tree import ModuleNode, tree
from analysis.profile.roofline import BETWEEN, BOUNDS, StepRoof, step_roof
from reports.profile.explanation import advised, explained, verdict
from reports.profile.fusion import Ladder, ladder
from reports.profile.icicle import icicle
from reports.profile.page_tables import kernel_rows, module_rows, operation_rows
from reports.profile.summary import conservation_lines, summary_lines
from reports.shared.figure_style import BOUND_COLOURS, BOUND_WORDS
from reports.shared.html import TABLES_SCRIPT, data_uri, is_wide, natural_size, rendered
from reports.shared.numbers import digits, percent, si_time
from results.records.step_profile import StepProfile

TEMPLATE = "profile.html.j2"
SCRIPT = "profile.js"

ALL = 999
"""A depth that no module has."""

RULE = (
    "Rules: model FLOP are those of convolutions and matrix products, 2 a multiply-add, counted from shapes; bytes are "
    "each input once and each output once, counted from shapes, too. An operation is bound by the host where it was "
    "waited for longer than it ran, else by the largest of its arithmetic, memory and launch time at the machine's "
    "rates. Times are means over the profiled steps."
)


@dataclass(frozen=True)
class Mark:
    """A colour and what it stands for; in a bar, how wide, in percent."""

    colour: str
    text: str
    share: str = ""


@dataclass(frozen=True)
class Step:
    """One line of the ladder from arithmetic to the measured step."""

    name: str
    text: str
    share: str
    model: bool


def page(profile: StepProfile, roofline: str = "") -> str:
    """The whole document. roofline: the plot as SVG text; "": none."""
    from markupsafe import Markup

    nodes, roof = tree(profile), step_roof(profile)
    width, height = natural_size(roofline)
    size = {"width": width, "height": height, "wide": is_wide(width)}
    return rendered(
        TEMPLATE,
        (TABLES_SCRIPT, SCRIPT),
        title=_title(profile),
        name=profile.model,
        sentence=verdict(profile),
        facts=[*summary_lines(profile, nodes[""])[1:], *(("note", note) for note in profile.notes)],
        paragraphs=explained(profile),
        advice=advised(profile),
        steps=_steps(ladder(profile)),
        icicle=Markup(icicle(profile, nodes)),  # its texts are escaped where it is drawn
        marks=_marks(roof),
        bar=_bar(roof),
        shares="; ".join(mark.text for mark in _bar(roof)),
        modules=module_rows(nodes),
        depths=_depths(nodes),
        roofline={"uri": data_uri(roofline), **size} if roofline else None,
        operations=operation_rows(profile),
        fused=kernel_rows(profile),
        sums=[*conservation_lines(profile, nodes[""]), *_sources(profile)],
        rule=RULE,
    )


def _title(profile: StepProfile) -> str:
    machine = profile.machine.device_name if profile.machine else ""
    return " · ".join(filter(None, ("flopledger", "profile", profile.model, machine or profile.device)))


def _steps(ladder: Ladder | None) -> list[Step]:
    """The ladder as bars of the longest."""
    if ladder is None:
        return []
    rungs: list[tuple[str, float | None, bool]] = [
        ("its arithmetic alone", ladder.arithmetic_s, True),
        ("ideally fused, at least", ladder.fused_s, True),
        ("one by one, about", ladder.unfused_s, True),
        ("measured", ladder.measured_s, False),
    ]
    longest = max(time_s for _, time_s, _ in rungs if time_s is not None)
    if not longest:
        return []
    return [
        Step(
            name,
            f"{si_time(time_s)}: {digits(ladder.arithmetic_s / time_s, 2)}",
            f"{100 * time_s / longest:.3f}",
            model,
        )
        for name, time_s, model in rungs
        if time_s
    ]


def _marks(roof: StepRoof) -> list[Mark]:
    """The colours that the step has."""
    present = [bound for bound in (*BOUNDS, BETWEEN, "") if roof.time_by_bound_s.get(bound)]
    return [Mark(BOUND_COLOURS[bound], BOUND_WORDS[bound]) for bound in present]


def _bar(roof: StepRoof) -> list[Mark]:
    return [
        Mark(BOUND_COLOURS[bound], f"{BOUND_WORDS[bound]}, {percent(share)}", f"{100 * share:.3f}")
        for bound in (*BOUNDS, BETWEEN, "")
        if (share := roof.share_by_bound.get(bound, 0.0)) > 0
    ]


def _depths(nodes: Mapping[str, ModuleNode]) -> list[tuple[str, int]]:
    """Buttons above the tree: what they say, and the depth that they unfold to."""
    deepest = max(node.depth for node in nodes.values())
    return [(f"depth {depth}", depth) for depth in range(1, min(deepest, 4))] + [("all", ALL)] if deepest else []


def _sources(profile: StepProfile) -> Sequence[str]:
    sources: Mapping[str, Any] = profile.machine.sources if profile.machine else {}
    return [f"{name}: {words}" for name, words in sources.items()]
