"""What checkpointing would bring a step, as lines of a table, rows of CSV and JSON: each choice with its largest batch.

Text around the choices of `analysis.footprint.checkpointing.curve`. It says nothing of the time that recomputation
takes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from analysis.footprint.checkpointing import Choice
from analysis.formula.algebra.constraints import amount
from reports.shared.layout import Column, Part, TextTable
from reports.shared.numbers import fitting, percent

SHOWN = 4
"""Stretches that a line names, at most."""

LINES = 12
"""Choices that a table shows, at most."""

LETTERS = 46
"""Letters of the modules of one choice."""


@dataclass(frozen=True)
class Checkpoints:
    """Choices from none on: each needs less memory, and more FLOP, than the one before.

    largest: of each the largest batch that fits, 0 where none does, None where it is not known; empty where no memory
    was asked for.
    """

    choices: Sequence[Choice]
    largest: Sequence[int | None] = ()

    def batch_of(self, place: int) -> int | None:
        """The largest batch of a choice."""
        return self.largest[place] if self.largest else None


def documents(checkpoints: Checkpoints) -> list[dict[str, Any]]:
    """The choices as JSON has them. stretches: modules from first to last of each checkpoint."""
    return [
        {
            "peak_bytes": each.peak_bytes,
            "recomputed_flop": each.recomputed_flop,
            "recomputed_ratio": each.recomputed_ratio,
            "stretches": [list(names) for names in each.stretches],
            "largest_batch": checkpoints.batch_of(place),
        }
        for place, each in enumerate(checkpoints.choices)
    ]


def columns(checkpoints: Checkpoints) -> list[dict[str, Any]]:
    """The choices as rows of CSV have them."""
    return [
        {
            "checkpoint": place,
            "checkpoint_peak_bytes": each.peak_bytes,
            "checkpoint_recomputed_flop": each.recomputed_flop,
            "checkpoint_recomputed_ratio": each.recomputed_ratio,
            "checkpoint_largest_batch": checkpoints.batch_of(place),
            "checkpoint_modules": "; ".join(map(stretch_words, each.stretches)),
        }
        for place, each in enumerate(checkpoints.choices)
    ]


def parts(checkpoints: Checkpoints) -> list[Part]:
    """The choices as a table, under a sentence that says what they mean."""
    if len(checkpoints.choices) < 2:
        return [meaning(checkpoints)]
    heads = ["peak if checkpointed", "saved", "FLOP again", *(["at most batch"] if checkpoints.largest else [])]
    first = checkpoints.choices[0].peak_bytes
    count = len(checkpoints.choices)
    spread = {index * (count - 1) // (LINES - 1) for index in range(LINES)}  # from the first to the last
    shown, rows = sorted(spread) if count > LINES else range(count), []
    for place in shown:
        each = checkpoints.choices[place]
        cells = [amount(each.peak_bytes, "B"), percent(1 - each.peak_bytes / first), percent(each.recomputed_ratio)]
        rows.append(
            [*cells, *([_batch(checkpoints.batch_of(place))] if checkpoints.largest else []), _short(each, LETTERS)]
        )
    columns = [*(Column(head, right=True) for head in heads)]
    columns.append(Column("one checkpoint each", right=False, wraps=True, rank=1, least=20))
    lines = [f"  {count - len(shown)} between these: --format csv"] if count > len(shown) else []
    return [meaning(checkpoints), "", TextTable(columns, rows, rule=False), *lines]


def meaning(checkpoints: Checkpoints) -> str:
    """What checkpointing brings, in a sentence or two."""
    first, last = checkpoints.choices[0], checkpoints.choices[-1]
    if len(checkpoints.choices) < 2:
        return "No checkpoint of the model's modules was found that lowers the peak."
    half = next(
        each for each in checkpoints.choices if 2 * (first.peak_bytes - each.peak_bytes) >= _gained(checkpoints)
    )
    sentence = (
        f"Checkpoints take the peak down to {amount(last.peak_bytes, 'B')} at the least, "
        f"{percent(_gained(checkpoints) / first.peak_bytes)} less, and {percent(last.recomputed_ratio)} of the forward "
        "pass's FLOP are done again"
    )
    sentence += f"; {percent(half.recomputed_ratio)} again bring half of that." if half is not last else "."
    known = [batch for batch in checkpoints.largest if batch is not None]
    if len(known) > 1 and max(known) > known[0]:
        sentence += (
            f" By live bytes the largest batch goes from {known[0]:,} to {max(known):,}, predicted from two small ones."
        )
    return sentence


def _gained(checkpoints: Checkpoints) -> int:
    return checkpoints.choices[0].peak_bytes - checkpoints.choices[-1].peak_bytes


def _batch(batch: int | None) -> str:
    return "–" if batch is None else f"{batch:,}" if batch else "none"


def _short(choice: Choice, letters: int) -> str:
    """The stretches that so many letters have room for, and how many more there are."""
    names = [stretch_words(stretch) for stretch in choice.stretches] or ["none"]
    for count in range(len(names), 0, -1):
        text = "; ".join(names[:count]) + (f"; {len(names) - count} more" if count < len(names) else "")
        if len(text) <= letters:
            return text
    return fitting(f"{len(names)}: {names[0]}", letters)


def modules(choice: Choice) -> str:
    """The first few stretches, and how many more there are."""
    names = [stretch_words(stretch) for stretch in choice.stretches]
    more = f" and {len(names) - SHOWN} more, to {names[-1]}" if len(names) > SHOWN else ""
    return ("; ".join(names[:SHOWN]) or "none") + more


def stretch_words(names: Sequence[str]) -> str:
    """The modules of one checkpoint."""
    return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
