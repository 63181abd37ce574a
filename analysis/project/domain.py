"""A domain: what is trained, how its error falls with data, and where it is to go. Made from a TOML file's tables.

A file of ten lines is enough (five are in `analysis/project/domains/`; docs/projections.md says what each key means):

    model = "wordlm"
    grows = "hidden"
    sub_batch = 128
    learning_curve = { beta_g = -0.066 }
    model_size = { sigma = 940, beta_p = 0.68 }
    error = { now = 3.37, target = 2.48 }
    data = { now = 768e6, per_sample = 25.37 }

Any number may be `[value, low, high]`. Nothing is projected here (`analysis/project/frontier.py`).

Formulas of the five domains' models, read from frontier_formulas.csv, so that projecting them needs no torch.

The file is made by `python -m benchmarks.pages.frontier`, a row a quantity: exact formulas by Catamount's rules
(docs/formula.md) and by our own. A test makes one model's rows again. Nothing is fitted here.

The roofline of a whole training step on a target accelerator, and the sub-batch that it suggests.

    step = max(FLOP ÷ (achievable share · peak), bytes ÷ (achievable share · bandwidth))     section 5.2.2 of the paper

The shares (0.8 and 0.7 there) are assumptions, not measurements. Bytes are those of every operation alone, nothing
fused or cached, so that memory's side of the maximum is no bound of real machines. Not claimed: that a step is as fast.

A training step on several accelerators, as section 6.2 of the paper has it, and how long an all-reduce takes.

Data parallelism with a synchronous step: dense gradients are summed in a ring (Patarasuk and Yuan 2009: 2(n - 1)/n of
the bytes pass each link), gradients of an embedding, of which a batch touches few rows, are gathered from all workers.
Layers on accelerators of their own work on successive steps of the sequence, as a pipeline. Not claimed: any overlap of
communication and arithmetic, latency, or that a larger batch learns as well.

`all_reduce_s` is the least time of an all-reduce over rings and trees.
Bytes are what one device sends (and receives). A ring all-reduce of S bytes over n devices is a reduce-scatter and an
all-gather of n − 1 steps each with S/n bytes (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69, 2009), so that each
device sends 2 S (n − 1)/n; a pair of binary trees, each for half of the bytes, in which no device is inner twice, sends
at most 2 S in 2 ⌈log₂ n⌉ steps (Sanders, Speck, Träff, Parallel Computing 35, 2009). Time is steps × latency + bytes ÷
rate, of full pipelines: no arithmetic of the sum, no contention, no stragglers.

A group that spans nodes reduces within each node, then between the nodes with each device on its own port, then gathers
within: three terms, one after the other. The faster of that and of one ring through everything is taken, as NCCL would.
"""

from __future__ import annotations

import csv
import functools
import itertools
import json
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from analysis.devices import memory as devices_memory
from analysis.devices import peaks
from analysis.devices.memory import Link
from analysis.formula.algebra.evaluate import compiled
from analysis.formula.algebra.expressions import names, parse, unknown_name
from analysis.project import learning_curves

FOLDER = Path(__file__).with_name("domains")
ORDER = ("word_lm", "char_lm", "nmt", "speech", "image")

TABLES: Mapping[str, Mapping[str, str]] = {
    "learning_curve": {"alpha": "alpha", "beta_g": "beta_g", "floor": "floor", "guess": "guess"},
    "model_size": {"sigma": "sigma", "beta_p": "beta_p"},
    "error": {"now": "error_now", "target": "error_target"},
    "data": {"now": "data_now", "per_sample": "per_sample"},
}
"""Table of the file → its numbers → their names in `Domain.numbers`."""

WORDS = {"error": "error_unit", "data": "data_unit"}
"""Table → the name of its `unit`."""

NEEDED = ("beta_g", "sigma", "beta_p", "error_target")

DEFAULTS = {"floor": 0.0, "per_sample": 1.0, "guess": math.inf}

MOST_UNCERTAIN = 6
"""Numbers with an interval, at most: the corners of their box are all looked at."""

Interval = tuple[float, float, float]
"""value, low, high."""


@dataclass(frozen=True)
class Domain:
    """numbers: name → (value, low, high). sizes: of the model, each a number or a formula in the size that grows."""

    name: str
    model: str
    grows: str
    sub_batch: int
    numbers: Mapping[str, Interval]
    sizes: Mapping[str, int | str] = field(default_factory=dict)
    error_unit: str = ""
    data_unit: str = "sample"
    source: str = ""

    def values(self) -> dict[str, float]:
        """Every number without its interval."""
        return {name: value for name, (value, _, _) in self.numbers.items()}

    def uncertain(self) -> list[str]:
        """Names of the numbers that have an interval."""
        return [name for name, (_, low, high) in self.numbers.items() if low < high]

    def corners(self) -> Iterator[dict[str, float]]:
        """The numbers at each corner of the box of their intervals."""
        names_ = self.uncertain()
        for ends in itertools.product((1, 2), repeat=len(names_)):
            yield {**self.values(), **{name: self.numbers[name][end] for name, end in zip(names_, ends, strict=True)}}

    def sizes_at(self, grown: int) -> dict[str, int]:
        """Every size that the file gives, where the one that grows has this value."""
        found = {self.grows: grown}
        for name, size in self.sizes.items():
            found[name] = size if isinstance(size, int) else int(parse(size, {self.grows: grown}))
        return found


def from_tables(tables: Mapping[str, Any], name: str) -> Domain:
    """The domain of a file's tables. name: where the file gives none. Raises ValueError in one line."""
    known = ("name", "model", "grows", "sub_batch", "sizes", "source", *TABLES)
    for key in tables:
        if key not in known:
            raise ValueError(unknown_name("key", key, known))
    for key in ("model", "grows"):
        if not (isinstance(tables.get(key), str) and tables[key]):
            raise ValueError(f"{key}: expected a word, got {tables.get(key, 'nothing')!r}")
    numbers = {key: number for table in TABLES for key, number in _numbers(table, tables.get(table, {}))}
    for key in NEEDED:
        if key not in numbers:
            table, inner = next((t, k) for t, keys in TABLES.items() for k, its in keys.items() if its == key)
            raise ValueError(f"{table}: expected {inner}, got none")
    made = Domain(
        name=_text(tables, "name") or name,
        model=tables["model"],
        grows=tables["grows"],
        sub_batch=_whole("sub_batch", tables.get("sub_batch", 1)),
        numbers={**{key: (value,) * 3 for key, value in DEFAULTS.items()}, **numbers},
        sizes=_sizes(tables.get("sizes", {}), tables["grows"]),
        error_unit=_text(tables.get("error", {}), "unit"),
        data_unit=_text(tables.get("data", {}), "unit") or "sample",
        source=_text(tables, "source"),
    )
    _check(made)
    return made


def shipped_names() -> list[str]:
    """The domains that come with the project, in the order of the paper."""
    return [name for name in ORDER if (FOLDER / f"{name}.toml").is_file()]


def shipped(name: str) -> Domain:
    """One of them."""
    return from_tables(tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8")), name)


def _numbers(table: str, found: Any) -> Iterator[tuple[str, Interval]]:
    if not isinstance(found, Mapping):
        raise ValueError(f"{table}: expected a table as in {{ {next(iter(TABLES[table]))} = 1.0 }}, got {found!r}")
    valid = (*TABLES[table], *(("unit",) if table in WORDS else ()))
    for key, value in found.items():
        if key not in valid:
            raise ValueError(unknown_name(f"key of {table}", key, valid))
        if key != "unit":
            yield TABLES[table][key], _interval(f"{table}.{key}", value)


def _interval(key: str, value: Any) -> Interval:
    several = value if isinstance(value, list) else [value] * 3
    plain = all(isinstance(each, int | float) and not isinstance(each, bool) for each in several)
    if not (plain and len(several) == 3 and all(math.isfinite(each) for each in several)):
        raise ValueError(f"{key}: expected a number or [value, low, high], got {value!r}")
    middle, low, high = map(float, several)
    if not low <= middle <= high:
        raise ValueError(f"{key}: expected [value, low, high] with the value between, got {value!r}")
    return middle, low, high


def _sizes(found: Any, grows: str) -> dict[str, int | str]:
    if not isinstance(found, Mapping):
        raise ValueError(f"sizes: expected a table as in {{ vocab = 10004 }}, got {found!r}")
    for name, size in found.items():
        if isinstance(size, str):
            if set(names(parse(size))) - {grows}:
                raise ValueError(f"sizes.{name}: expected a formula in {grows}, got {size!r}")
        else:
            _whole(f"sizes.{name}", size)
        if name == grows:
            raise ValueError(f"sizes.{name}: expected sizes that do not grow, this one does")
    return dict(found)


def _whole(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{key}: expected a whole number of at least 1, got {value!r}")
    return value


def _text(table: Any, key: str) -> str:
    value = table.get(key, "") if isinstance(table, Mapping) else ""
    if not isinstance(value, str):
        raise ValueError(f"{key}: expected words, got {value!r}")
    return value


def _check(domain: Domain) -> None:
    """Everything that the numbers must keep, at every corner of their intervals."""
    if not ("error_now" in domain.numbers and "data_now" in domain.numbers) and "alpha" not in domain.numbers:
        raise ValueError(
            "expected error.now and data.now, or learning_curve.alpha: one says how much data a target takes"
        )
    if len(domain.uncertain()) > MOST_UNCERTAIN:
        raise ValueError(f"expected at most {MOST_UNCERTAIN} numbers with an interval, got {len(domain.uncertain())}")
    for key in ("sigma", "alpha", "error_now", "error_target", "data_now", "per_sample"):
        if key in domain.numbers and not domain.numbers[key][1] > 0:
            raise ValueError(f"{key}: expected a number above 0, got {domain.numbers[key][1]:g}")
    for end in (1, 2):
        learning_curves.check_beta_g(domain.numbers["beta_g"][end])
        learning_curves.check_beta_p(domain.numbers["beta_p"][end])
    target, floor = domain.numbers["error_target"], domain.numbers["floor"]
    if target[1] <= floor[2]:
        words = f"expected more than {floor[2]:g}, the irreducible error, got {target[1]:g}"
        raise ValueError(f"error.target: {words}: no data reaches it")


FILE = Path(__file__).with_name("frontier_formulas.csv")

BATCH = "batch"

RULES = ("catamount", "flopledger")

AT_LEAST = "at_least_"
"""Before a quantity of the file that lacks a storage of no known size."""


@dataclass(frozen=True)
class Formulas:
    """Quantities of a model's training step (`analysis/formula/derivation/totals.py`) as expressions in its sizes and
    the batch.

    sizes: the value of each size where nobody gives another. element_bytes: of a number in the step that was counted.
    products_alone: whether all_flop is model_flop, because the other arithmetic has no formula. at_least: quantities
    that lack a storage of no known size.
    """

    model: str
    rules: str
    sizes: Mapping[str, int]
    quantities: Mapping[str, Any]
    element_bytes: int = 4
    products_alone: bool = False
    at_least: frozenset[str] = frozenset()

    def at(self, quantity: str, **point: int) -> float:
        """`exact` as a float."""
        return float(self.exact(quantity, **point))

    def exact(self, quantity: str, **point: int) -> int | Fraction:
        """A quantity's value at the sizes with these changed. Raises ValueError for a size that the model lacks."""
        known = {**self.sizes, BATCH: 1}
        for name in point:
            if name not in known:
                raise ValueError(f"{self.model}: {unknown_name('size', name, known)}")
        here = {**known, **point}
        wanted, function = _called(self.quantities[quantity])
        return function(*(here[name] for name in wanted))


@functools.cache
def shipped_formulas(rules: str = RULES[0]) -> Mapping[str, Formulas]:
    """Model → its formulas by these rules."""
    found: dict[str, dict[str, Any]] = {}
    heads: dict[str, Mapping[str, str]] = {}
    partial: dict[str, set[str]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["rules"] != rules:
                continue
            quantity = row["quantity"].removeprefix(AT_LEAST)
            found.setdefault(row["model"], {})[quantity] = row["formula"]
            partial.setdefault(row["model"], set()).update({quantity} - {row["quantity"]})
            heads[row["model"]] = row
    return {
        model: Formulas(
            model,
            heads[model]["rules"],
            json.loads(heads[model]["sizes"]),
            _Parsed(texts),
            at_least=frozenset(partial[model]),
        )
        for model, texts in found.items()
    }


@functools.lru_cache(maxsize=256)
def _called(expression: Any) -> tuple[list[str], Callable[..., int | Fraction]]:
    """Names of an expression's symbols, and it as a function of their values in that order."""
    return names(expression), compiled(expression)


class _Parsed(Mapping[str, Any]):
    """Texts that are parsed when they are asked for."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts, self._parsed = texts, dict[str, Any]()

    def __getitem__(self, quantity: str) -> Any:
        if quantity not in self._parsed:
            self._parsed[quantity] = parse(self._texts[quantity])
        return self._parsed[quantity]

    def __iter__(self) -> Any:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


COMPUTE_RATIO, MEMORY_RATIO = 0.8, 0.7
"""The shares of peak and bandwidth that the paper assumes to be achievable."""

SATURATED = 0.95
"""An intensity this near its limit is saturated."""

ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Unit of arithmetic → bytes of a number in memory."""


@dataclass(frozen=True)
class Accelerator:
    """A target. memory_bytes, link_bytes_per_s and cache_bytes are None where nobody said. source: of the figures."""

    name: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    memory_bytes: float | None = None
    link_bytes_per_s: float | None = None
    cache_bytes: float | None = None
    compute_ratio: float = COMPUTE_RATIO
    memory_ratio: float = MEMORY_RATIO
    element_bytes: int = 4
    source: str = ""

    def __post_init__(self) -> None:
        for name in ("peak_flop_per_s", "bandwidth_bytes_per_s"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name}: expected a number above 0, got {getattr(self, name):g}")
        for name in ("compute_ratio", "memory_ratio"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name}: expected a share above 0 and at most 1, got {getattr(self, name):g}")

    @property
    def flop_per_s(self) -> float:
        """Achievable."""
        return self.compute_ratio * self.peak_flop_per_s

    @property
    def bytes_per_s(self) -> float:
        """Achievable."""
        return self.memory_ratio * self.bandwidth_bytes_per_s

    @property
    def nominal_ridge(self) -> float:
        """FLOP a byte from which on the sheet's figures make arithmetic the bound."""
        return self.peak_flop_per_s / self.bandwidth_bytes_per_s

    @property
    def ridge(self) -> float:
        """FLOP a byte at which achievable arithmetic and bandwidth take equally long."""
        return self.flop_per_s / self.bytes_per_s

    def step(self, flop: float, moved_bytes: float) -> AcceleratorStep:
        """The roofline of a step or of an operation."""
        arithmetic, memory = flop / self.flop_per_s, moved_bytes / self.bytes_per_s
        time = max(arithmetic, memory)
        utilization = flop / time / self.peak_flop_per_s if time else 0.0
        return AcceleratorStep(time, "arithmetic" if arithmetic >= memory else "memory", utilization)


@dataclass(frozen=True)
class AcceleratorStep:
    """bound: arithmetic or memory; utilization_ratio: of the nominal peak."""

    time_s: float
    bound: str
    utilization_ratio: float


@dataclass(frozen=True)
class SubBatches:
    """Sub-batches of interest (section 5.2.1 of the paper), each a whole number, None where there is none.

    ridge: the intensity of the whole step is at the ridge; fastest: the smallest with the least time a sample;
    saturated: the intensity is at `SATURATED` of what it tends to.
    """

    ridge: int | None
    fastest: int | None
    saturated: int | None


def of_device(device: str, unit: str, like: Accelerator) -> Accelerator:
    """A row of the table of peaks as a target, with everything that it does not say from `like`.

    Its memory is that of the table of memories, None where that has none.

    Raises ValueError as `device_called`, for a unit without a peak, a row without bandwidth.
    """
    row = peaks.device_called(device)
    if unit not in row.peaks:
        raise ValueError(f"{row.name}: {unknown_name('dtype with a peak', unit, row.peaks)}")
    if row.bandwidth_bytes_per_s is None:
        raise ValueError(f"{row.name}: expected a bandwidth in the table of peaks, there is none")
    memory = next(filter(None, map(devices_memory.lookup, (device, *row.names))), None)
    return replace(
        like,
        name=f"{row.name}, {unit}",
        peak_flop_per_s=row.peaks[unit],
        bandwidth_bytes_per_s=row.bandwidth_bytes_per_s,
        memory_bytes=float(memory.memory_bytes) if memory else None,
        link_bytes_per_s=None,
        cache_bytes=None,
        element_bytes=ELEMENT_BYTES[unit],
        source=row.source,
    )


def sub_batches(
    flop: Callable[[int], float],
    moved_bytes: Callable[[int], float],
    time_s: Callable[[int], float],
    ridge: float,
    most: int,
) -> SubBatches:
    """The sub-batches of a model whose step costs these, looked for up to `most`.

    time_s: of a step. fastest: the smallest whose time a sample is within 1 % of the least of all up to `most`.
    The intensity must not fall as the batch grows, as that of no model does whose weights are read once a step.
    """
    wanted = time_s(most) / most * 1.01
    limit = SATURATED * flop(most) / moved_bytes(most)

    def intensity(batch: int) -> float:
        return flop(batch) / moved_bytes(batch)

    return SubBatches(
        ridge=_first(lambda batch: intensity(batch) >= ridge, most),
        fastest=_first(lambda batch: time_s(batch) / batch <= wanted, most),
        saturated=_first(lambda batch: intensity(batch) >= limit, most),
    )


def _first(holds: Callable[[int], bool], most: int) -> int | None:
    """The smallest number from 1 to `most` at which this holds, if it holds from there on."""
    if not holds(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


LINK_RATIO = 0.8
"""The share of a link's rate that is achieved. The paper prints none: with this one its four results of section 6.2
follow, with 1 none of them: a calibration."""


def ring_all_reduce_s(nbytes: float, workers: int, link_bytes_per_s: float) -> float:
    """Seconds that a ring takes to sum so many bytes of each worker."""
    return 2 * (_count("workers", workers) - 1) / workers * nbytes / link_bytes_per_s


def gather_s(nbytes: float, workers: int, link_bytes_per_s: float) -> float:
    """What it takes a worker to receive what all workers have, its own included."""
    return _count("workers", workers) * nbytes / link_bytes_per_s if workers > 1 else 0.0


def sparse_gradient_bytes(batch: int, length: int, width: int, element_bytes: int = 4) -> int:
    """The embedding's gradient that one worker makes: a row for each of its symbols, indices left out."""
    return batch * length * width * element_bytes


def communication_s(
    dense_bytes: float, sparse_bytes: float, workers: int, link_bytes_per_s: float, link_ratio: float = LINK_RATIO
) -> float:
    """Both kinds of gradient, one after the other."""
    if not 0 < link_ratio <= 1:
        raise ValueError(f"expected a share of the link above 0 and at most 1, got {link_ratio:g}")
    achieved = link_bytes_per_s * link_ratio
    return ring_all_reduce_s(dense_bytes, workers, achieved) + gather_s(sparse_bytes, workers, achieved)


def pipelined_s(stages_s: Sequence[float], length: int, after_s: float = 0.0) -> float:
    """Layers that each take so long for one step of a sequence of `length`: the pipeline fills (the sum of one step of
    all but the slowest), then the slowest sets the pace; `after_s` is what waits for all steps (the output layer)."""
    if not stages_s:
        raise ValueError("expected a stage or more, got none")
    slowest = max(stages_s)
    return sum(stages_s) - slowest + _count("length", length) * slowest + after_s


def epoch_s(samples: float, batch: int, workers: int, step_s: float) -> float:
    """An epoch of so many samples, the last batch not rounded up."""
    return samples / (_count("batch", batch) * _count("workers", workers)) * step_s


def evened(pieces: Sequence[float], divisible: int) -> tuple[float, ...]:
    """Bytes on each accelerator after the piece at index `divisible` was split over all so that the fullest is as empty
    as can be. What the others have stays where it is."""
    whole = [nbytes for at, nbytes in enumerate(pieces) if at != divisible]
    spread, room = pieces[divisible], sorted([0.0, *whole])
    level = room[0]
    for count in range(1, len(room) + 1):
        level = (sum(room[:count]) + spread) / count
        if count == len(room) or level <= room[count]:
            break
    return tuple(max(level, 0.0 if at == divisible else nbytes) for at, nbytes in enumerate(pieces))


def _count(what: str, number: int) -> int:
    if number < 1:
        raise ValueError(f"{what}: expected 1 or more, got {number}")
    return number


@dataclass(frozen=True)
class Group:
    """Devices that communicate. per_node of them share a node; size is a multiple of it. achieved: of the rates."""

    size: int
    per_node: int
    within: Link
    between: Link
    achieved: float = 1.0

    @property
    def nodes(self) -> int:
        """How many nodes the group spans."""
        return self.size // self.per_node

    def slowest(self) -> Link:
        """What a ring through the whole group goes at."""
        return self.within if self.nodes == 1 else self.between


def all_reduce_s(total_bytes: float, group: Group) -> float:
    """Seconds of an all-reduce: the fastest of a ring, two trees, and both halves in layers."""
    if group.size == 1:
        return 0.0
    link = group.slowest()
    steps = 2 * math.ceil(math.log2(group.size))
    trees = steps * link.latency_s + 2 * total_bytes / (link.bytes_per_s * group.achieved)
    return min(2 * half_s(total_bytes, group), trees)


def half_s(total_bytes: float, group: Group) -> float:
    """Seconds of a reduce-scatter, or of an all-gather, of so many bytes in all."""
    flat = _ring_s(total_bytes, group.size, group.slowest(), group.achieved)
    inner = _ring_s(total_bytes, group.per_node, group.within, group.achieved)
    outer = _ring_s(total_bytes / group.per_node, group.nodes, group.between, group.achieved)
    return min(flat, inner + outer)


def _ring_s(total_bytes: float, devices: int, link: Link, achieved: float) -> float:
    """Half of a ring: each device sends (n − 1)/n of the bytes in n − 1 steps."""
    return (devices - 1) * link.latency_s + total_bytes * (devices - 1) / devices / (link.bytes_per_s * achieved)
