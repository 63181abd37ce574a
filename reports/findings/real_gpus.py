"""Findings on GPUs that others measured: utilization, batch, precision, layout, compile, PyTorch, card (the atlas).

Worked out from the imported rows (`analysis/atlas/published_steps.csv.gz`), whose sources are on docs/atlas.md. FLOP
and peaks are ours, times are theirs. What no two rows differ in alone stays open.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reports.findings.data import Published
from reports.findings.shared import IN_PART, OPEN, Section, link, table
from reports.shared import percent

if TYPE_CHECKING:
    import pandas as pd

    from analysis.atlas import RateRatio

TITLE = "What models reach on GPUs that others measured"

OLD, NEW, NEWEST = (
    "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
)

FAMILIES = (
    "vgg",
    "resnet",
    "vision_transformer",
    "swin_transformer",
    "convnext",
    "regnet",
    "efficientnet",
    "mobilenetv3",
)
"""Families of the table, those that the first questions are about."""

FEWEST = 20
"""Pairs of a line of a table."""

PAIR_HEADS = ("of", "first → second", "pairs", "models", "items/s, second ÷ first", "middle half", "faster")


@functools.cache
def rows_of_atlas() -> pd.DataFrame | None:
    """The imported rows as a table; None where they are not installed (a wheel)."""
    from analysis.atlas import TABLE, published_steps, summary

    return summary.frame(published_steps()) if TABLE.is_file() else None


def real_gpus(runs: Sequence[Published], folder: str) -> Section:
    """What GPUs reach, and what each condition changes, from published rows."""
    rows = rows_of_atlas()
    if rows is None:
        return Section(TITLE, OPEN, "The table of published steps is not installed.")
    layouts = _pairs(rows, "layout", [("channels_first", "channels_last")], ("mode", "device", "framework"))
    compiled = _pairs(rows, "compiled", [("False", "True")], ("mode", "device", "precision", "framework"))
    trained = int(((rows["mode"] == "train") & rows["compiled"]).sum())
    body = (
        f"Sources, rows and how they were timed: {link('atlas', 'atlas.md')}. A pair is of two rows that agree in "
        "source, model, image size, batch and all else that the table does not name.",
        *_used(rows),
        *_batch(rows),
        *_precision(rows),
        _table("By layout", "", layouts),
        _table("By compile", f"Inference; of compiled training steps there are {trained or 'no'} rows.", compiled),
        *_card(rows),
        _table("By PyTorch", "", _pytorch(rows)),
    )
    return Section(TITLE, IN_PART, _answer(rows, layouts, compiled), body)


def training_of(rows: pd.DataFrame, device: str = OLD) -> pd.DataFrame:
    """Training steps with a utilization on one device of one sort."""
    return rows[
        (rows["mode"] == "train")
        & (rows["device"] == device)
        & (rows["devices"] == 1)
        & rows["utilization_ratio"].notna()
        & rows["precision"].str.startswith("amp-")
    ]


def families_on_a_gpu() -> str:
    """What families of MobileNet and EfficientNet reach in training on one card, beside all; empty without the rows."""
    rows = rows_of_atlas()
    if rows is None:
        return ""
    trained = training_of(rows)
    groups = {name: trained[trained["family"] == name]["utilization_ratio"] for name in ("efficientnet", "mobilenetv3")}
    medians = " and ".join(f"{name} {percent(used.median())} ({len(used):,} rows)" for name, used in groups.items())
    whole = f"{percent(trained['utilization_ratio'].median())} of {len(trained):,} rows of all families"
    return f"In training on an RTX 3090 (timm's families) the medians are {medians}, beside {whole} (section 10)."


def _answer(rows: pd.DataFrame, layouts: Sequence[RateRatio], compiled: Sequence[RateRatio]) -> str:
    trained = training_of(rows)
    low, middle, high = (percent(each) for each in trained["utilization_ratio"].quantile([0.25, 0.5, 0.75]))
    best = trained.sort_values("utilization_ratio").iloc[-1]
    trained_layouts = [each for each in layouts if "train" in each.of]
    elsewhere = rows[(rows["mode"] == "train") & (rows["device"] != OLD) & rows["utilization_ratio"].notna()]
    models = sorted(name.rpartition(":")[2] for name in set(elsewhere["counted_model"]))
    return (
        f"Training on an RTX 3090 with autocast to fp16: {middle} of the dense peak is the median of {len(trained):,} "
        f"rows of {trained['counted_model'].nunique()} models (middle half {low} to {high}), the best "
        f"{best['model']} with {percent(best['utilization_ratio'])}. channels_last: {_span(trained_layouts)} × the "
        f"items a second in training; torch.compile: {_span(compiled)} × in inference. {_batch_in_training(rows)} "
        f"Training on {elsewhere['device'].nunique()} other cards is known of {', '.join(models)} alone."
    )


def _batch_in_training(rows: pd.DataFrame) -> str:
    """What a larger batch gives in training: of the one source that published an image model at several."""
    found = [each for each in _pairs(rows, "batch_size", BATCHES, ("mode", "source", "device"), fewest=1)
             if each.of[:2] == ("train", "Zeus")]  # fmt: skip
    if not found:
        return "Batch size in training: open."
    spans = [
        f"{_span(mine)} × the items a second from {first} to {second}"
        for first, second in BATCHES
        if (mine := [each for each in found if (each.first, each.second) == (first, second)])
    ]
    cards = len({each.of[2] for each in found})
    return f"Batch size in training: of resnet50 alone, on {cards} cards (Zeus' epochs), {', '.join(spans)}."


def _span(ratios: Sequence[RateRatio]) -> str:
    """The medians of several groups: "1.06 to 1.08"."""
    medians = sorted({f"{each.median:.3g}" for each in ratios}, key=float)
    return medians[0] if len(medians) == 1 else f"{medians[0]} to {medians[-1]}"


def _pairs(
    rows: pd.DataFrame, column: str, sides: list[tuple[str, str]], of: tuple[str, ...],
    but_for: tuple[str, ...] = (), fewest: int = FEWEST,
) -> list[RateRatio]:  # fmt: skip
    from analysis.atlas import paired_ratios

    return paired_ratios(rows, column, sides, of, but_for, fewest)


def _used(rows: pd.DataFrame) -> list[str]:
    """Utilization in training by family on one card."""
    trained = training_of(rows)
    lines = []
    for name in FAMILIES:
        group = trained[trained["family"] == name]
        if len(group):
            quarters = group["utilization_ratio"].quantile([0.25, 0.5, 0.75, 1])
            of_bound = group["achieved_over_bound_ratio"].median()
            models = str(group["counted_model"].nunique())
            lines.append((name, f"{len(group):,}", models, *map(percent, quarters), percent(of_bound)))
    heads = ("family", "rows", "models", "lower quartile", "median", "upper quartile", "best", "median of the bound")
    others = f"All {trained['family'].nunique()} families and the inference rows: {link('atlas', 'atlas.md')}."
    title = f"**Utilization.** Training on an RTX 3090, of the dense fp16 peak. {others}"
    return [f"{title}\n\n{table(heads, lines)}"]


BATCHES = [("1", "8"), ("8", "64"), ("64", "256")]


def _batch(rows: pd.DataFrame) -> list[str]:
    """What a larger batch gives, from settings that were published at several."""
    from analysis.atlas import pairs_of

    wide = pairs_of(rows, "batch_size")
    several = int((wide.notna().sum(axis=1) > 1).sum())
    words = (
        f"{several:,} of {len(wide):,} settings were published at two batches or more, of training "
        f"{_trained_batches(wide) or 'none'}: timm lowers the batch until the step fits, so that its rows of different "
        "batches differ in model or card, too. Zeus' are epochs of resnet50 at one power limit, in a precision that is "
        "not said, with the loading of data in them; several optimizers count as their median."
    )
    found = _pairs(rows, "batch_size", BATCHES, ("mode", "source", "device", "precision"), fewest=1)
    return [_table("By batch size", words, found)]


def _trained_batches(wide: pd.DataFrame) -> int:
    """Settings of training with several batches."""
    return int(((wide.notna().sum(axis=1) > 1) & (wide.index.get_level_values("mode") == "train")).sum())


def _precision(rows: pd.DataFrame) -> list[str]:
    half = _pairs(rows, "precision", [("amp-fp16", "amp-bf16"), ("amp-bf16", "bf16")], ("mode", "device", "compiled"))
    single = _pairs(
        rows, "precision", [("fp32", "amp-fp16")], ("mode", "source", "device"), ("batch_size", "devices"), fewest=1
    )
    words = (
        "fp32 is TF32 on cards that have it, which Lambda does not say; its batches of the two precisions differ. "
        "ResNet-50 on 1 to 8 cards is all there is of that."
    )
    return [_table("By precision", words, [*half, *single])]


def _card(rows: pd.DataFrame) -> list[str]:
    """One card's items a second ÷ another's beside the ratio of their peaks and bandwidths."""
    found = _pairs(
        rows, "device", [(OLD, NEW), (NEW, NEWEST)], ("mode", "precision", "compiled"), ("framework", "batch_size")
    )
    ratios = "; ".join(_sheets(first, second) for first, second in ((OLD, NEW), (NEW, NEWEST)))
    return [_table("By card", f"PyTorch and batch differ within a pair. {ratios}.", found), _resnet50(rows)]


def _sheets(first: str, second: str) -> str:
    from analysis.devices import lookup

    old, new = lookup(first), lookup(second)
    assert old is not None
    assert new is not None
    peak = new.peaks["fp16"] / old.peaks["fp16"]
    memory = (new.bandwidth_bytes_per_s or 0.0) / (old.bandwidth_bytes_per_s or 1.0)
    return f"{_short(second)} ÷ {_short(first)} by the datasheets: peak {peak:.3g}, bandwidth {memory:.3g}"


def _resnet50(rows: pd.DataFrame) -> str:
    """ResNet-50 in training by card."""
    from scipy.stats import spearmanr

    from analysis.devices import lookup

    chosen = rows[
        (rows["source"] == "Lambda") & (rows["devices"] == 1) & rows["utilization_ratio"].notna()
        & (rows["precision"] == "amp-fp16")
    ]  # fmt: skip
    cards = []
    for name, group in chosen.groupby("device"):
        device = lookup(str(name))
        assert device is not None
        cards.append((device.peaks["fp16"], float(group["utilization_ratio"].median()), _short(str(name)), len(group)))
    cards.sort()
    lines = [(card, str(count), f"{peak / 1e12:.3g}", percent(used)) for peak, used, card, count in cards]
    order = spearmanr([card[0] for card in cards], [card[1] for card in cards]).statistic
    words = (
        f"ResNet-50 in training, one card, autocast to fp16, from Lambda. The rank correlation of peak and used is "
        f"{order:.2f} over {len(cards)} cards."
    )
    return f"{words}\n\n{table(('card', 'rows', 'dense fp16 peak, TFLOP/s', 'used'), lines)}"


def _pytorch(rows: pd.DataFrame) -> list[RateRatio]:
    versions = [("torch 1.10 cu113", "torch 1.12 cu113"), ("torch 1.12 cu113", "torch 2.4.0 cu124")]
    return _pairs(rows, "framework", versions, ("mode", "device", "layout"))


def _table(title: str, words: str, ratios: Sequence[RateRatio]) -> str:
    lines = [
        (
            ", ".join(_short(word) for word in each.of),
            f"{_short(each.first)} → {_short(each.second)}",
            f"{each.pairs:,}",
            f"{each.models:,}",
            f"{each.median:.3g}",
            f"{each.low:.3g} to {each.high:.3g}",
            percent(each.above_one_ratio),
        )
        for each in ratios
    ]
    return f"**{title}.** {words}\n\n{table(PAIR_HEADS, lines)}".replace(".** \n", ".**\n")


def _short(word: str) -> str:
    """A word of a table: without what all cards of a maker have, and yes or no as what it means."""
    words = {"True": "compiled", "False": "eager", "": "precision not said"}
    if word == "NVIDIA examples":
        return word
    return words.get(word, word.removeprefix("NVIDIA ").removesuffix(" Workstation Edition"))
