"""headline.csv: one row a cell, the numbers that the terminal's table shows of it, unrounded.

utilization.csv has every numerator over every denominator, so that a mean over its rows is a mean of different
questions; here each cell has the one fraction that is shown first. A cell without one is there, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping

from cleaning.reconcile.view import Built, View
from reports.shared.numbers import verdict
from reports.sweep.answer.repeats import Repeats, repeats_by_cell
from results.garbage_collector import collector_off
from results.records.answers import Headline
from results.records.cell import Sitting, identity
from results.store.layout import key_of


@collector_off()
def headline_rows(built: Built) -> list[Headline]:
    """A row for each cell, in the order of the table: by model, batch, precision and repeat."""
    sittings = {sitting.sitting: sitting for sitting in built.sittings}
    views = sorted(built.views, key=lambda v: (v.run.model, v.run.batch_size, v.run.precision, v.run.repeat))
    together = repeats_by_cell(views, views)
    return [_row(view, sittings, together.get(key_of(view.run))) for view in views]


def _row(view: View, sittings: Mapping[str, Sitting], repeats: Repeats | None) -> Headline:
    run, headline, step = view.run, view.headline, view.step
    row = headline or view.timed_row
    home = sittings.get(run.sitting)
    return Headline(
        **identity(run, Headline),
        variant=view.variant,
        device_name=home.device_name if home is not None else "",
        step_time_s=step.time_s if step else None,
        step_time_low_s=step.time_low_s if step else None,
        step_time_high_s=step.time_high_s if step else None,
        items_per_s=row.items_per_s if row else None,
        model_flop=row.model_flop if row else None,
        achieved_flop_per_s=row.achieved_flop_per_s if row else None,
        peak_flop_per_s=headline.peak_flop_per_s if headline else None,
        peak_source=headline.peak_source if headline else "",
        denominator=headline.denominator if headline else "",
        method=row.method if row else "",
        numerator_source=row.numerator_source if row else "",
        utilization_ratio=headline.utilization_ratio if headline else None,
        utilization_low_ratio=headline.utilization_low_ratio if headline else None,
        utilization_high_ratio=headline.utilization_high_ratio if headline else None,
        verdict=verdict(view),
        status=run.status,
        reason=run.reason if run.reason or headline else _why_no_ratio(view),
        attention=row.attention if row else "",
        causal_flop=row.causal_flop if row else None,
        mask_exact_flop=row.mask_exact_flop if row else None,
        causal_utilization_ratio=headline.causal_utilization_ratio if headline else None,
        mask_exact_utilization_ratio=headline.mask_exact_utilization_ratio if headline else None,
        repeats=len(repeats.views) if repeats else int(headline is not None),
        repeats_ratio=repeats.ratio if repeats else None,
        repeats_low_ratio=repeats.low if repeats else None,
        repeats_high_ratio=repeats.high if repeats else None,
        hardware_flop=row.hardware_flop if row else None,
        windows_low_ratio=headline.windows_low_ratio if headline else None,
        windows_high_ratio=headline.windows_high_ratio if headline else None,
    )


def _why_no_ratio(view: View) -> str:
    return "; ".join(dict.fromkeys(row.reason for row in view.fractions if row.reason)) or "no method was asked for"
