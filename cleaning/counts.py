"""Which of a counter's operators are model FLOP: convolutions and matrix products. What is left out is logged.

fvcore's total adds 2 to 5 per element of a normalisation to the multiply-adds of convolutions; model FLOP is the
latter alone, those inside attention and recurrent layers too, of forward and backward. A counter's own number and unit
stay beside the FLOP that its adapter made of them (2 a multiply-add). It does not judge which counter is right.
"""

from collections.abc import Iterable

from analysis.operators.registry import PRODUCTS
from analysis.utilization.counter_operators import OPERATORS, kind_of_operator
from results.records.counts import CleaningLog, FlopCount
from results.records.rows import WHOLE, to_text
from results.store.layout import FLOP_COUNTS


def model_operators(counts: Iterable[FlopCount]) -> tuple[list[FlopCount], list[CleaningLog]]:
    """Totals and the rows of operators that are model FLOP; and a log entry for each row that is left out.

    Counters that give no operators pass through untouched. A second time it leaves out nothing.
    """
    products, log = [], []
    for count in counts:
        why = _why_left_out(count)
        if why is None:
            products.append(count)
            continue
        where = f"{count.scope} " if count.scope != WHOLE else ""
        log.append(
            CleaningLog(
                step="model_operators",
                file=FLOP_COUNTS,
                cell_id=count.cell_id,
                attempt=count.attempt,
                subject=f"{count.counter} {count.phase} batch {count.batch_size} {where}{count.operator}",
                field="flop",
                before=to_text(count.flop),
                after="",
                reason=f"left out: {why}",
            )
        )
    return products, log


def _why_left_out(count: FlopCount) -> str | None:
    if not count.operator or count.counter not in OPERATORS:
        return None
    kind = kind_of_operator(count.counter, count.operator, count.native_unit)
    if kind is None:
        return "not understood: the operator is in no table, so it is not counted"
    return None if kind in PRODUCTS else f"{kind} is neither a convolution nor a matrix product"


def known_sum(values: Iterable[int | None]) -> int | None:
    """The sum of what is known; None if nothing is. What a recorder that leaves numbers out gives as its total."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def whole_sum(values: Iterable[int | None]) -> int | None:
    """The sum; None if one of the values is unknown."""
    every = list(values)
    return None if None in every else known_sum(every) or 0
