"""Compares what "Beyond human-level accuracy" (PPoPP 2019) prints with what follows from its inputs, cell by cell.

Tables 1 to 4 and section 5 are covered: data and model scales, the limits of cost as a model grows, and one training
step. Costs come from this project's formulas by the counting rules of Catamount, the paper's own tool. The step is at
the width that gives table 3's parameter count. `analysis/project/ppopp2019_case_study.py` has section 6. The paper's
folder holds inputs.csv, results.csv (what it prints), assumptions.csv (what else is needed, explained) and reasons.csv
(why a result does not follow). Printed results are never an input. `cells` takes the derived values and returns a
`PaperCell` with a verdict for each result.
"""

import csv
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from analysis.project.accelerator import Accelerator, epoch_s
from analysis.project.domain import Domain, Formulas, data_scale, error_after
from analysis.project.frontier import DAY_S, amount, asymptote, batches, cost_of, grown_for

PAPER = "ppopp2019"

FOLDER = Path(__file__).with_name("papers") / PAPER

PAPERS = {PAPER: "Hestness, Ardalani, Diamos: Beyond human-level accuracy, PPoPP 2019"}

TOLERANCE = 0.02

REPRODUCED = "reproduced"
ASSUMED = "reproduced with a stated assumption"
NOT = "not reproducible"
VERDICTS = (REPRODUCED, ASSUMED, NOT)

BETWEEN = "; "
"""Separator of a cell's assumptions."""

Key = tuple[str, str, str]
"""table, row, column."""


@dataclass(frozen=True)
class Printed:
    """A number as printed. text: with its digits, as in "9.4e-4"."""

    text: str

    @property
    def value(self) -> float:
        """The number."""
        return float(self.text)

    @property
    def half_unit(self) -> float:
        """Half a unit of its last digit: the largest rounding error."""
        exponent = Decimal(self.text).as_tuple().exponent
        assert isinstance(exponent, int)  # no infinity is printed
        return float(Decimal(5).scaleb(exponent - 1))

    @property
    def ends(self) -> tuple[float, float]:
        """The range of values that round to this one."""
        return self.value - self.half_unit, self.value + self.half_unit


def box(function: Callable[..., float], *printed: Printed) -> tuple[float, float]:
    """Return the least and the most of a function, monotone in each argument, over the ranges that round to these
    numbers."""
    values = [function(*corner) for corner in itertools.product(*(number.ends for number in printed))]
    return min(values), max(values)


@dataclass(frozen=True)
class DerivedValue:
    """A value that follows from the inputs. assumptions: keys of assumptions.csv that it needs; low, high: range over
    the rounding of the inputs."""

    value: float
    assumptions: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class PaperCell:
    """One printed result. paper None: a figure without numbers; ours None: nothing follows. deviation_ratio: ours ÷
    paper - 1."""

    table: str
    row: str
    column: str
    paper: float | None
    ours: float | None
    deviation_ratio: float | None
    verdict: str
    assumption: str
    reason: str
    unit: str
    ours_low: float | None
    ours_high: float | None


Inputs = Mapping[Key, Printed]


def inputs(folder: Path = FOLDER) -> Inputs:
    """Return the inputs from which the paper calculates its results."""
    return {_key(row): Printed(row["value"]) for row in _rows(folder / "inputs.csv")}


def assumptions(folder: Path = FOLDER) -> dict[str, float]:
    """Return the assumptions: key → value."""
    return {row["key"]: float(row["value"]) for row in _rows(folder / "assumptions.csv")}


def cells(derived: Mapping[Key, DerivedValue], folder: Path = FOLDER) -> list[PaperCell]:
    """Return every printed result with the derived value, in the paper's order. Raises ValueError for a derived value
    without a printed result."""
    rows = _rows(folder / "results.csv")
    if strange := set(derived) - {_key(row) for row in rows}:
        raise ValueError(f"expected results that are printed, got {sorted(strange)[0]}")
    texts = {row["key"]: row["words"] for row in _rows(folder / "assumptions.csv")}
    reasons = {_key(row): row["reason"] for row in _rows(folder / "reasons.csv")}
    return [_cell(_key(row), row, derived.get(_key(row)), texts, reasons) for row in rows]


def count(cells: Iterable[PaperCell]) -> dict[str, int]:
    """Return verdict → number of cells, in the order of VERDICTS."""
    counter = Counter(cell.verdict for cell in cells)
    return {verdict: counter[verdict] for verdict in VERDICTS}


def _cell(
    key: Key, row: Mapping[str, str], derived: DerivedValue | None, texts: Mapping[str, str], reasons: Mapping[Key, str]
) -> PaperCell:
    printed = Printed(row["value"]) if row["value"] else None
    verdict, rounding = _verdict(printed, derived, row["unit"])
    assumptions = [texts[name] for name in derived.assumptions] if derived and verdict != NOT else []
    table, domain, column = key
    patterns = (key, (table, "*", column), (table, domain, "*"), (table, "*", "*"))
    reason = next((reasons[pattern] for pattern in patterns if pattern in reasons and verdict == NOT), "")
    return PaperCell(
        *key,
        paper=printed.value if printed else None,
        ours=derived.value if derived else None,
        deviation_ratio=derived.value / printed.value - 1 if derived and printed else None,
        verdict=verdict,
        assumption=BETWEEN.join([*assumptions, *rounding]),
        reason=reason,
        unit=row["unit"],
        ours_low=derived.low if derived else None,
        ours_high=derived.high if derived else None,
    )


def _verdict(printed: Printed | None, derived: DerivedValue | None, unit: str) -> tuple[str, Sequence[str]]:
    """Return the verdict, and the assumptions about digits: both sides are known only to within rounding."""
    if printed is None or derived is None:
        return NOT, ()
    if abs(derived.value / printed.value - 1) <= TOLERANCE:
        return (ASSUMED if derived.assumptions else REPRODUCED), ()
    least, most = printed.ends
    if least * (1 - TOLERANCE) <= derived.value <= most * (1 + TOLERANCE):
        return ASSUMED, (
            f"the printed {amount(printed.value, unit)} is rounded, from {amount(least)} to {amount(most, unit)}",
        )
    if derived.low is not None and derived.high is not None and derived.low <= most and least <= derived.high:
        return ASSUMED, (
            f"the printed inputs are rounded, and {amount(derived.low)} to {amount(derived.high, unit)} follow",
        )
    return NOT, ()


def _key(row: Mapping[str, str]) -> Key:
    return row["table"], row["row"], row["column"]


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


MILLION = 1e6
YEAR_DAYS = 365.0
RIDGE_FACTOR, LANES = 1.5, 32
"""Ratio of the chosen sub-batch to the ridge's (section 5.2.1 of the paper), and a multiple that suits a device."""

TERA_BINARY = 2.0**40 / 1e12
GIGA_BINARY = 2.0**30 / 1e9

DerivedValues = dict[Key, DerivedValue]


@dataclass(frozen=True)
class PaperRow:
    """A domain in the paper's tables. sizes: the model's; asymptotic: those of table 2 where they differ; assumed: keys
    of the assumptions that its sizes are; sigma: key of the assumption that replaces the printed sigma; samples: key of
    the assumption for what an epoch counts, "" where the data are samples, None where unknown; years: whether section 5
    has them."""

    name: str
    model: str
    grows: str
    sizes: Mapping[str, int | str]
    asymptotic: Mapping[str, int | str] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    sigma: str | None = None
    samples: str | None = None
    years: bool = False


SPEECH: Mapping[str, int | str] = {
    "attention_hidden": "floor(hidden/2)",
    "decoder_hidden": "floor(hidden/2)",
    "keys": 128,
    "conv_width": 50,
    "filters": 4,
    "frames": 300,
}
"""The artifact's sizes, with the frames of section 4.2."""

ROWS = (
    PaperRow("word LM", "wordlm", "hidden", {"vocab": 10004, "seq": 80}, samples="sentences", years=True),
    PaperRow("character LM", "charlm", "hidden", {"vocab": 98, "seq": 150}, {}, (), "char_sigma", "letters", True),
    PaperRow("NMT", "nmt", "hidden", {"vocab": 36548, "seq": 50}, {"seq": 26}, ("nmt_seq",), None, "pairs", True),
    PaperRow("speech", "speech", "hidden", SPEECH),
    PaperRow("image", "resnet152", "width", {"image": 224, "classes": 1000}, assumed=("layers",), samples=""),
)
"""Sizes are the artifact's (github.com/baidu-research/catamount, tests/full) except those that are assumed."""

COUNTED = {"sentences": "sentences", "letters": "sentences", "pairs": "pairs"}
"""What an epoch counts → the assumption with its number today."""

RESNETS = ("resnet50", "resnet101", "resnet152")


def target_of(paper: Inputs) -> Accelerator:
    """Return the accelerator of table 4."""
    return Accelerator(
        name="the paper's target",
        peak_flop_per_s=paper["Table 4", "target", "compute throughput"].value,
        bandwidth_bytes_per_s=paper["Table 4", "target", "memory bandwidth"].value,
        memory_bytes=paper["Table 4", "target", "memory capacity"].value,
        link_bytes_per_s=paper["Table 4", "target", "inter-device bandwidth"].value,
        cache_bytes=paper["Table 4", "target", "on-chip cache"].value,
        compute_ratio=paper["Table 4", "target", "achievable compute"].value,
        memory_ratio=paper["Table 4", "target", "achievable bandwidth"].value,
        source="table 4 of Hestness, Ardalani, Diamos (PPoPP 2019)",
    )


def tables(paper: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas]) -> DerivedValues:
    """Return the derived values of tables 1 to 4, and the years of section 5."""
    target = target_of(paper)
    results: DerivedValues = {
        ("Table 4", "target", "ridge point"): DerivedValue(target.peak_flop_per_s / target.bandwidth_bytes_per_s),
        ("Table 4", "target", "achievable ridge point"): DerivedValue(target.ridge),
    }
    for row in ROWS:
        results.update(_scales(row, paper))
        results.update(_asymptotes(row, paper, formulas))
        results.update(_requirements(row, paper, assumed, formulas, target))
    gammas = [results["Table 2", row.name, "gamma"].value for row in ROWS]
    results["Figure 7", "all domains", "least gamma"] = DerivedValue(min(gammas))
    results["Figure 7", "all domains", "most gamma"] = DerivedValue(max(gammas), ("depths",))
    return results


def domain_of(row: PaperRow, batch: int = 1, sizes: Mapping[str, int | str] | None = None) -> Domain:
    """Return a row as a domain: the growing size, and its sizes."""
    return Domain(row.name, row.model, row.grows, batch, {}, {**row.sizes, **(sizes or {})})


def sized(
    row: PaperRow, paper: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas]
) -> tuple[Domain, int]:
    """Return a row of table 3 with its sub-batch, and the width that has its parameters."""
    domain = domain_of(row, int(paper["Table 3", row.name, "sub-batch"].value))
    sigma = assumed[row.sigma] if row.sigma else paper["Table 1", row.name, "sigma"].value
    parameters = _model_size(
        paper["Table 3", row.name, "data"].value, paper["Table 1", row.name, "beta_p"].value, sigma
    )
    return domain, grown_for(domain, formulas[row.model], parameters)


def _scales(row: PaperRow, paper: Inputs) -> Iterator[tuple[Key, DerivedValue]]:
    """Yield the derived values of table 1, and the data of table 3."""
    now, desired, beta_g, samples, alpha = (
        paper["Table 1", row.name, column]
        for column in ("current SOTA", "desired SOTA", "beta_g", "current samples", "alpha")
    )
    data, beta_p = paper["Table 3", row.name, "data"], paper["Table 1", row.name, "beta_p"]

    def data_of(now: float, desired: float, beta_g: float, samples: float) -> float:
        return float(data_scale(now, desired, beta_g) * samples)

    def models(more: float, less: float, b: float) -> float:
        return float((more / less) ** b)

    yield ("Table 1", row.name, "SOTA of alpha"), _boxed(error_after, samples, alpha, beta_g)
    yield ("Table 1", row.name, "data scale"), _boxed(data_scale, now, desired, beta_g)
    yield ("Table 1", row.name, "model scale"), _boxed(models, data, samples, beta_p)
    yield ("Table 3", row.name, "data of Table 1"), _boxed(data_of, now, desired, beta_g, samples)


def _boxed(function: Callable[..., float], *printed: Printed) -> DerivedValue:
    """Return the derived value of printed numbers, with its range over their rounding."""
    return DerivedValue(function(*(number.value for number in printed)), (), *box(function, *printed))


def _asymptotes(row: PaperRow, paper: Inputs, formulas: Mapping[str, Formulas]) -> Iterator[tuple[Key, DerivedValue]]:
    """Yield the derived values of table 2: limits as the model grows, at table 3's sub-batch."""
    batch = int(paper["Table 3", row.name, "sub-batch"].value)
    models = RESNETS if row.model in RESNETS else (row.model,)
    limits = [asymptote(domain_of(row, batch, row.asymptotic), formulas[model]) for model in models]
    mean = {name: sum(limit[name] for limit in limits) / len(limits) for name in limits[0]}
    mean |= {"lambda/gamma": mean["lambda"] / mean["gamma"], "mu/gamma": mean["mu"] / mean["gamma"]}
    for name, value in mean.items():
        yield ("Table 2", row.name, name), DerivedValue(value, ("depths",) if len(models) > 1 else ())


def _model_size(data: float, beta_p: float, sigma: float) -> float:
    """Return the parameters that the data need. sigma: in millions."""
    return float(sigma * MILLION * data**beta_p)


def _requirements(
    row: PaperRow, paper: Inputs, assumed: Mapping[str, float], formulas: Mapping[str, Formulas], target: Accelerator
) -> Iterator[tuple[Key, DerivedValue]]:
    """Yield the derived values of table 3, and the years of section 5."""
    printed = (("Table 3", "data"), ("Table 1", "beta_p"), ("Table 1", "sigma"))
    by_sigma = _boxed(_model_size, *(paper[table, row.name, column] for table, column in printed))
    yield ("Table 3", row.name, "parameters"), by_sigma
    domain, grown = sized(row, paper, assumed, formulas)
    cost = cost_of(domain, formulas[row.model], target, grown)
    its = (*((row.sigma,) if row.sigma else ()), *row.assumed)
    step_s = target.step(cost["flop"], cost["moved_bytes"]).time_s
    ridge = batches(domain, formulas[row.model], target, grown).ridge
    assert ridge is not None
    yield ("Table 3", row.name, "sub-batch chosen"), DerivedValue(math.ceil(RIDGE_FACTOR * ridge / LANES) * LANES)
    yield ("Table 3", row.name, "step FLOP"), DerivedValue(cost["flop"], its)
    yield ("Table 3", row.name, "step bytes"), DerivedValue(cost["moved_bytes"] / TERA_BINARY, (*its, "binary"))
    yield ("Table 3", row.name, "footprint"), DerivedValue(cost["footprint_bytes"] / GIGA_BINARY, (*its, "binary"))
    yield ("Table 3", row.name, "step time"), DerivedValue(step_s, its)
    samples = samples_of(row, paper, assumed)
    if samples is None:
        return
    days = epoch_s(samples, domain.sub_batch, 1, step_s) / DAY_S
    data = paper["Table 3", row.name, "data"]
    low, high = (days * end / data.value for end in data.ends)
    its = (*its, *((row.samples,) if row.samples else ()))
    yield ("Table 3", row.name, "epoch"), DerivedValue(days, its, low, high)
    if row.years:
        years = DerivedValue(days / YEAR_DAYS, its, low / YEAR_DAYS, high / YEAR_DAYS)
        yield ("Section 5", row.name, "years of an epoch"), years


def samples_of(row: PaperRow, paper: Inputs, assumed: Mapping[str, float]) -> float | None:
    """Return the samples of an epoch, of which a step takes a sub-batch: the data ÷ data per sample. None where
    unknown."""
    if row.samples is None:
        return None
    data, now = paper["Table 3", row.name, "data"].value, paper["Table 1", row.name, "current samples"].value
    return data / now * assumed[COUNTED[row.samples]] if row.samples else data
