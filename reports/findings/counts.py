"""Findings that are counts: Hobbhahn's figures and tables (2021), how far each counter is off, backward ÷ forward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from cleaning.counts import known_sum, whole_sum
from reports.findings.data import Published, largest_batch, widest
from reports.findings.shared import IN_PART, OPEN, SETTLED, Section, cells, link, named, picture, table, times
from reports.shared import model_name, percent, si
from results.records import Agreement, CleanedOperation, Ratio, Run

FIGURES = (
    ("utilization_by_model", "utilization by model"),
    ("utilization_by_method", "utilization by model and method"),
    ("utilization_by_method_post2021", "the same in the post's own arithmetic"),
    ("utilization_by_batch", "utilization by batch size"),
    ("forward_flops_by_counter", "forward FLOP by counter"),
    ("backward_flops_by_counter", "backward FLOP by counter"),
    ("flops_per_image_by_batch", "FLOP an image by batch size, as found and as cleaned"),
    ("flops_by_operation", "FLOP by operation, right, over or under"),
    ("flops_by_state", "FLOP as found, without duplicates, repaired"),
    ("backward_forward_by_operation", "backward ÷ forward by operation, as found and as cleaned"),
    ("backward_forward_by_model", "backward ÷ forward by model, one sample, a batch, an epoch"),
    ("epoch_time_by_batch", "time of an epoch by batch size, profiled and not"),
)
"""File name → what it shows, in the order of the post's argument: its kinds of figure, and those beside them."""

TABLE_MODEL = "resnet18"
"""The model of both operation tables, where a run profiled it."""

OWN = "flopledger"


def figures_of_the_post(runs: Sequence[Published], folder: str) -> Section:
    """The post's figures from our own rows, and its two tables of operations, uncleaned beside cleaned."""
    shown, rows = [], []
    for name, words in FIGURES:
        run = next((run for run in widest(runs) if run.has_figure(name)), None)
        if run is None:
            rows.append((words, OPEN))
            continue
        path = f"{folder}/{run.name}/figures/{name}.png"
        rows.append((words, link(run.name, path)))
        shown.append(f"{picture(words[0].upper() + words[1:], path)}\n\n*{words[0].upper()}{words[1:]}: {run.name}.*")
    tables = _operation_tables(runs)
    drawn = len(shown)
    state = IN_PART if drawn or tables else OPEN
    where = "on a GPU too" if any(run.on_gpu for run in runs) else "on a CPU; on the post's GPU nothing was measured"
    answer = f"{drawn} of {len(FIGURES)} kinds of figure and {'both tables' if tables else 'no table'}, {where}."
    note = (
        "The post's own figures are pictures and were not read: these show what those show, from our rows, with "
        "intervals. Each is drawn by `python -m runners.report RUN` from every cell of its run."
    )
    body = (note, table(("figure", "drawn from"), rows), *tables, *shown)
    return Section("The post's figures and operation tables, from our own rows", state, answer, body)


def _operation_tables(runs: Sequence[Published]) -> list[str]:
    """Forward and backward, one row a name: calls, FLOP as found and as cleaned."""
    for run in widest(runs):
        for cell in (cell for cell in run.measured_cells if cell.model == TABLE_MODEL and "batch" in cell.profiled):
            products = run.products(cell.cell_id, "batch")
            if products:
                phases = (("forward", ("forward", "loss")), ("backward", ("backward",)))
                return [
                    _operation_table(cell, name, [p for p in products if p.phase in which]) for name, which in phases
                ]
    return []


def _operation_table(cell: Run, phase: str, products: Sequence[CleanedOperation]) -> str:
    rows = []
    for name in dict.fromkeys(product.name for product in products):
        mine = [product for product in products if product.name == name]
        verdicts = Counter(product.verdict for product in mine)
        verdict_counts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
        rows.append((f"`{name}`", str(len(mine)), *_raw_and_cleaned(mine), verdict_counts))
    rows.append(("all", str(len(products)), *_raw_and_cleaned(products), ""))
    of = f"{cell.model}, batch {cell.batch_size}, by torch.profiler {cells([cell.cell_id])}"
    head = f"{phase.capitalize()} pass of {of}:"
    return f"{head}\n\n{table(('operation', 'calls', 'as found', 'cleaned', 'as found it is'), rows)}"


def _raw_and_cleaned(products: Sequence[CleanedOperation]) -> tuple[str, str]:
    """The sums of what was found and of what is cleaned; with a product without a number, what they are at least."""
    sums = []
    for field in ("found_flop", "cleaned_flop"):
        numbers = [getattr(product, field) for product in products]
        whole, known = whole_sum(numbers), known_sum(numbers)
        sums.append("unknown" if known is None else _flop(known) if whole is not None else f"at least {_flop(known)}")
    return sums[0], sums[1]


def _flop(value: int) -> str:
    return si(value, "FLOP") if value else "0"


# --- counters --------------------------------------------------------------------------------------------------------


def counters(runs: Sequence[Published], folder: str) -> Section:
    """Each counter of each pass against our own count, over the models of a run, then model by model."""
    title = "How far each counter is off"
    run = next((run for run in widest(runs) if len({row.counter for row in run.agreement}) > 2), None)
    if run is None:
        return Section(title, OPEN, "No published run counted with several counters.")
    rows = [row for row in run.agreement if row.total_ratio is not None and row.counter != OWN]
    if not rows:
        return Section(title, OPEN, f"No total of a counter in {run.name} stands beside an exact count.")
    far = max(rows, key=lambda row: abs((row.total_ratio or 1.0) - 1))
    models = len({row.model for row in rows})
    exact = sum(row.ratio == 1 for row in rows if row.ratio is not None)
    answer = (
        f"Of {models} models all products that a counter sees are right to the unit in {exact} of "
        f"{sum(row.ratio is not None for row in rows)} counts; totals go from {_least(rows)} to {_most(rows)} × the "
        f"exact count, the farthest {far.counter}'s {far.phase} pass of {far.model} [`{far.cell_id}`]."
    )
    heads = ("counter", "pass", "models", "products × exact: least, median, most", "all it counts × exact", "farthest")
    spread = [_spread(group) for group in _groups(rows)]
    others = (
        f"Why, FLOP by FLOP, for 139 models and eleven counters: {link('counters', 'counters.md')}; each fault by "
        f"itself: {link('counter-faults', 'counter-faults.md')}. Products are convolutions and matrix products; – : "
        "the counter does not tell them apart."
    )
    body = (f"From {run.name}.", table(heads, spread), others, _by_model(rows))
    return Section(title, SETTLED, answer, body)


def _groups(rows: Iterable[Agreement]) -> list[list[Agreement]]:
    groups: dict[tuple[str, str], list[Agreement]] = {}
    for row in rows:
        groups.setdefault((row.phase, row.counter), []).append(row)
    return [groups[key] for key in sorted(groups, key=lambda key: (key[0] != "forward", key[1]))]


def _spread(rows: Sequence[Agreement]) -> tuple[str, ...]:
    products = [row.ratio for row in rows if row.ratio is not None]
    totals = [row.total_ratio for row in rows if row.total_ratio is not None]
    far = max(rows, key=lambda row: abs((row.total_ratio or 1.0) - 1))
    place = f"{far.model} {cells([far.cell_id])}"
    return (rows[0].counter, rows[0].phase, str(len(rows)), _range(products), _range(totals), place)


def _range(ratios: Sequence[float]) -> str:
    return ", ".join(times(ratio) for ratio in (min(ratios), median(ratios), max(ratios))) if ratios else "–"


def _by_model(rows: Sequence[Agreement]) -> str:
    columns = list(dict.fromkeys((row.phase, row.counter) for group in _groups(rows) for row in group))
    cell_of = {row.model: row.cell_id for row in rows}
    found = {(row.model, row.phase, row.counter): row.total_ratio for row in rows}
    heads = ("model", "cell", *(f"{counter}{'' if phase == 'forward' else ', backward'}" for phase, counter in columns))
    lines = []
    for model, cell_id in cell_of.items():
        values = [found.get((model, phase, counter)) for phase, counter in columns]
        lines.append((model, cells([cell_id]), *("–" if value is None else times(value) for value in values)))
    head = "All that a counter counts, × the exact count of the pass (forward unless it says backward):"
    return f"{head}\n\n{table(heads, lines)}"


def _least(rows: Sequence[Agreement]) -> str:
    return times(min(row.total_ratio for row in rows if row.total_ratio is not None))


def _most(rows: Sequence[Agreement]) -> str:
    return times(max(row.total_ratio for row in rows if row.total_ratio is not None))


# --- backward ÷ forward ----------------------------------------------------------------------------------------------


def backward_forward(runs: Sequence[Published], folder: str) -> Section:
    """Each model's exact ratio, beside what recordings and counters say of it."""
    title = "Backward ÷ forward"
    run = next((run for run in widest(runs) if run.model_ratios), None)
    if run is None:
        return Section(title, OPEN, "No published run has ratios.")
    size = largest_batch(run.measured_cells)
    here = [cell for cell in run.measured_cells if cell.batch_size == size and cell.repeat == 0]
    rows = [row for cell in here if (row := _ratios_of(run, cell)) is not None]
    exact = [value for cell in here if (value := _exact(run, cell)) is not None]
    answer = (
        f"From {min(exact):.4g} to {max(exact):.4g} over {len(exact)} models, never exactly 2: the first layer's "
        f"input needs no gradient. 3 × forward is above a step by {_excess(max(exact))} to {_excess(min(exact))} "
        f"{named(cell.cell_id for cell in here)}."
    )
    heads = ("model", "cell", "exact", "2 − first ÷ all", "profile, cleaned", "profile, as found", "FlopCounterMode")
    note = (
        "*Exact* is our own count of the step; *2 − first ÷ all* is worked out from the forward pass alone; "
        "*cleaned* is torch.profiler's recording of a batch after duplicates and gaps are repaired from recorded "
        "shapes; *as found* there is no ratio where the recorder gives calls no number."
    )
    return Section(title, SETTLED, answer, (f"From {run.name}, batch {size}.", table(heads, rows), note))


def _excess(ratio: float) -> str:
    """How much 3 × forward is above a step of this ratio."""
    return percent(3 / (1 + ratio) - 1)


def _of(run: Published, cell: Run, source: str, work: str, state: str) -> Ratio | None:
    wanted = (cell.cell_id, source, work, state)
    return next((r for r in run.model_ratios if (r.cell_id, r.source, r.work, r.state) == wanted), None)


def _exact(run: Published, cell: Run) -> float | None:
    row = _of(run, cell, OWN, "", "cleaned")
    return row.ratio if row else None


def _of_a_part(row: Ratio) -> bool:
    """Whether a side of a ratio lacks calls: what older runs wrote of a recorder that leaves calls out."""
    return row.unknown_calls > 0 or "have no count" in row.reason


def _ratios_of(run: Published, cell: Run) -> tuple[str, ...] | None:
    own = _of(run, cell, OWN, "", "cleaned")
    if own is None or own.ratio is None:
        return None
    others = [
        _of(run, cell, "torch_profiler", "batch", "cleaned"),
        _of(run, cell, "torch_profiler", "batch", "found"),
        _of(run, cell, "flop_counter_mode", "", "found"),
    ]
    closed = "–" if own.exact_ratio is None else f"{own.exact_ratio:.6f}"
    cells_of_row = [
        "–" if row is None or row.ratio is None or _of_a_part(row) else f"{row.ratio:.6g}" for row in others
    ]
    return (model_name(cell), cells([cell.cell_id]), f"{own.ratio:.6f}", closed, *cells_of_row)
