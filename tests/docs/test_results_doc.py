"""docs/results.md: the numbers of its tables and sentences, worked out again from the kept rates and accounts."""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

ROOT = Path(__file__).parents[2]
TEXT = " ".join((ROOT / "docs" / "results.md").read_text(encoding="utf-8").split())
RATES = pd.read_csv(ROOT / "results" / "published" / "paired-rates-2026-11-28.csv")
ACCOUNTS = pd.read_csv(ROOT / "results" / "published" / "accounts-2026-11-21" / "accounts.csv.gz")
FIRST = RATES[RATES["repeat"] == 0]
CELL = ["model", "layout", "precision", "batch_size"]
IDENTITY = [*CELL, "repeat"]


def test_each_model_reaches_what_its_row_says() -> None:
    used = 100 * FIRST.groupby(CELL)["utilization_ratio"].mean().unstack(CELL[1:])
    logs = np.log(RATES.pivot(index=IDENTITY, columns="run", values="utilization_ratio"))
    variance, count = (logs.var(axis=1, ddof=1).groupby("model").agg(how) for how in ("mean", "size"))
    for model, values in used.iterrows():
        half = stats.t.ppf(0.975, 2 * count[model]) * np.sqrt(variance[model] / 3)
        keys = [("channels_first", "fp32", 1), ("channels_first", "fp32", 8), ("channels_last", "fp32", 8)]
        numbers = [values[key] for key in (*keys, ("channels_last", "amp-bf16", 8))]
        shown = " | ".join(f"{number:.2g}" for number in numbers)
        assert f"| {model} | {shown} | {100 * np.expm1(half):.1f} % |" in TEXT


def test_sessions_differ_as_the_table_says() -> None:
    used, steps, low, high, below, above = (
        RATES.pivot(index=IDENTITY, columns="run", values=name)
        for name in ("utilization_ratio", "step_time_s", "utilization_low_ratio", "utilization_high_ratio",
                     "windows_low_ratio", "windows_high_ratio")
    )  # fmt: skip
    runs = list(used.columns)
    for name, a, b in (("second ÷ first", 0, 1), ("third ÷ second", 1, 2), ("third ÷ first", 0, 2)):
        a, b = runs[a], runs[b]
        apart = np.expm1(np.log(used[b] / used[a]).abs())
        own, any_window = (
            ((lows[a] <= highs[b]) & (lows[b] <= highs[a])).sum() for lows, highs in ((low, high), (below, above))
        )
        assert (
            f"| {name} | {(used[b] / used[a]).median():.3f} | {100 * apart.median():.1f} % | "
            f"{100 * apart.quantile(0.9):.1f} % | {(steps[b] / steps[a]).median():.3f} | {own} | {any_window} |"
        ) in TEXT


def test_what_batches_precision_and_layout_bring() -> None:
    by_batch = FIRST.set_index(["run", *CELL])["utilization_ratio"].unstack()
    for name, precision in (("fp32", "fp32"), ("bf16", "amp-bf16")):
        rates = by_batch.xs(precision, level="precision")
        cells = []
        for above, below in ((4, 1), (8, 4), (8, 1)):
            ratio = rates[above] / rates[below]
            of_runs = ratio.groupby("run").median()
            cells.append(f"{ratio.median():.2f} ({of_runs.min():.2f} to {of_runs.max():.2f})")
        assert f"| {name} | {' | '.join(cells)} |" in TEXT
    faster = FIRST.set_index(["run", "model", "layout", "batch_size", "precision"])["step_time_s"].unstack()
    ratio = faster["amp-bf16"] / faster["fp32"]
    batches = ratio.groupby("batch_size").median()
    assert f"takes {ratio.median():.2f} of the time of one in fp32" in TEXT
    assert f"{batches[1]:.2f} at batch 1, {batches[4]:.2f} at 4, {batches[8]:.2f} at 8" in TEXT
    layouts = FIRST.set_index(["run", "model", "batch_size", "precision", "layout"])["step_time_s"].unstack()
    ratio = layouts["channels_last"] / layouts["channels_first"]
    by_precision = ratio.groupby("precision").median()
    assert f"takes {ratio.median():.2f} of the time of one with channels first" in TEXT
    assert f"{by_precision['fp32']:.2f} in fp32, {by_precision['amp-bf16']:.2f} in bf16" in TEXT


def test_counters_differ_as_the_table_says() -> None:
    rows = ACCOUNTS[(ACCOUNTS["batch_size"] == 1) & (ACCOUNTS["phase"] == "forward") & ACCOUNTS["flop_ratio"].notna()]
    thirteen = rows[rows["model"].isin(RATES["model"])].groupby("counter")["flop_ratio"]
    names = {"FlopCounterMode": "flop_counter_mode", "torch.profiler": "torch_profiler", "DeepSpeed": "deepspeed"}
    for name in (*names, "fvcore", "calflops", "ptflops", "thop", "torchinfo", "pthflops"):
        counter = names.get(name, name)
        least, most = (f"{each:.3f}" for each in (thirteen.min()[counter], thirteen.max()[counter]))
        ratios = rows[rows["counter"] == counter]["flop_ratio"]
        within = str((abs(ratios - 1) <= 0.01).sum()) + (f" of {len(ratios)}" if len(ratios) < 139 else "")
        assert f"| {name} | {least if least == most else f'{least} to {most}'} | {within} |" in TEXT
    assert f"by {100 * (thirteen.max().max() - 1):.1f} % at most" in TEXT
    assert f"all {len(ACCOUNTS):,} rows has a cause" in TEXT
