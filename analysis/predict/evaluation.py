"""What predictions are worth on rows that the fit has not seen: families left out, devices left out, and baselines.

Which family is in which part is read from `splits.csv`, which was written before anything was fitted on it, and which
device from `device_splits.csv`, where each is a part of its own. Every
number is of rows whose family (or device) was in no part of the fit; the constant of a baseline is taken from the rows
of that same fit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from analysis.atlas import PublishedStep
from analysis.devices import PRECISIONS, lookup
from analysis.predict.amount_table import StepKey
from analysis.predict.fitting import fit_settings
from analysis.predict.intervals import by_group, covered, ground_of
from analysis.predict.operation_amounts import COMPILED, EAGER, StepAmounts
from analysis.predict.step_time import Machine, Numbers, Setting, Terms, parts_of, terms_of

SPLITS = Path(__file__).with_name("splits.csv")
DEVICE_SPLITS = Path(__file__).with_name("device_splits.csv")

Words = NDArray[np.str_]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FitRows:
    """Rows that a model is fitted to and compared with, all eager or all compiled.

    design: the terms of each row at the datasheet's rates, s, shape (rows, terms). The others have shape (rows,);
    bound_s and unfused_s are NaN where a row has none.
    """

    rows: Sequence[PublishedStep]
    settings: Sequence[Setting]
    terms: Terms
    design: Numbers
    time_s: Numbers
    families: Words
    devices: Words
    arithmetic_s: Numbers
    bound_s: Numbers
    unfused_s: Numbers

    @property
    def pools(self) -> Words:
        return np.array([setting.pool.text for setting in self.settings])


def usable(row: PublishedStep) -> bool:
    """Whether a row can be fitted: counted, on a device with peaks, in autocast, of a family, of timm's own loop."""
    return bool(
        row.source == "timm"
        and row.status == "ok"
        and row.precision.startswith("amp-")
        and row.family
        and row.utilization_ratio is not None
    )


def sample(rows: Sequence[PublishedStep], steps: Mapping[StepKey, Mapping[str, StepAmounts]], run: str) -> FitRows:
    """The rows of a way of running whose amounts are known. run: EAGER or COMPILED."""
    kept = [row for row in rows if usable(row) and row.compiled == (run == COMPILED) and key_of(row) in steps]
    terms = terms_of([steps[key][run] for key in {key_of(row) for row in kept}])
    design = np.array(
        [terms.row(steps[key_of(row)][run], row.batch_size or 0, machine_of(row.device, row.precision)) for row in kept]
    )
    return FitRows(
        kept,
        [setting_of(row) for row in kept],
        terms,
        design.reshape(len(kept), len(terms.names)),
        np.array([row.step_time_s for row in kept], float),
        np.array([row.family for row in kept]),
        np.array([row.device for row in kept]),
        np.array([(row.model_flop or 0) / (row.peak_flop_per_s or np.nan) for row in kept], float),
        np.array([row.bound_time_s or np.nan for row in kept], float),
        np.array([row.unfused_time_s or np.nan for row in kept], float),
    )


OTHER_SOURCES = ("Lambda", "NVIDIA examples")
"""Sources that no factor was fitted on: their rows are compared with predictions alone."""


def other_rows(rows: Sequence[PublishedStep]) -> list[PublishedStep]:
    """Rows in autocast of other sources, of systems of one device, with a count and a step's time."""
    return [
        row
        for row in rows
        if row.source in OTHER_SOURCES
        and row.status == "ok"
        and row.devices == 1
        and row.step_time_s is not None
        and row.precision.startswith("amp-")
    ]


def key_of(row: PublishedStep) -> StepKey:
    """The step that a row is of."""
    return StepKey(row.counted_model, row.image_size or 0, row.mode)


def unfused_bytes(row: PublishedStep, steps: Mapping[StepKey, Mapping[str, StepAmounts]]) -> float | None:
    """What the operations of a row's step read and write, each launched alone, bytes.

    None of a compiled step, of one without a batch, and where the amounts are not kept.
    """
    if row.compiled or not row.batch_size or key_of(row) not in steps:
        return None
    return sum(each.at(row.batch_size)[2] for each in steps[key_of(row)][EAGER].values())


def setting_of(row: PublishedStep) -> Setting:
    """The setting that a row was measured in."""
    return Setting(row.mode, row.layout, row.compiled, row.device, row.precision, row.framework)


def machine_of(device_name: str, precision: str) -> Machine:
    """The datasheet's rates of a device in a precision. Raises ValueError where it has none of them."""
    device = lookup(device_name)
    unit = PRECISIONS[precision].matmul_unit
    if device is None or not device.peaks.get(unit) or not device.bandwidth_bytes_per_s:
        raise ValueError(f"no datasheet peak of {unit}, or no bandwidth, of {device_name}")
    return Machine(device.peaks[unit], device.bandwidth_bytes_per_s)


def parts_by_family(path: Path = SPLITS) -> dict[str, int]:
    """Family → the part that it is left out with. Raises ValueError for a file that is not the split."""
    return _parts(path, "family")


def parts_by_device(path: Path = DEVICE_SPLITS) -> dict[str, int]:
    """Device → the part that it is left out with: one each. Raises ValueError for a file that is not the split."""
    return _parts(path, "device")


def _parts(path: Path, what: str) -> dict[str, int]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames != [what, "part"]:
            raise ValueError(f"{path.name}: expected the columns {what}, part")
        return {row[what]: int(row["part"]) for row in rows}


@dataclass(frozen=True, eq=False)
class LeftOut:
    """Predictions of rows that were left out, s, by method, each of shape (rows,); grounds: of the method itself."""

    predicted_s: Mapping[str, Numbers]
    grounds: Words


METHODS = ("this model", "roofline × constant", "unfused × constant", "constant utilization")
OURS, ROOFLINE, UNFUSED, CONSTANT = METHODS


def families_left_out(data: FitRows, parts: Mapping[str, int]) -> LeftOut:
    """Each row predicted from rows of families in other parts. Raises KeyError for a family that is in no part."""
    part = np.array([parts[family] for family in data.families])
    return _left_out(data, part, "setting")


def devices_left_out(data: FitRows, parts: Mapping[str, int]) -> LeftOut:
    """Each row predicted from rows of devices in other parts: by the factors of its pool.

    Raises KeyError for a device that is in no part.
    """
    return _left_out(data, np.array([parts[device] for device in data.devices]), "pool")


def _left_out(data: FitRows, part: NDArray[np.int_], by: str) -> LeftOut:
    texts = data.pools if by == "pool" else np.array([setting.text for setting in data.settings])
    found = {method: np.full(len(data.time_s), np.nan) for method in METHODS}
    grounds = np.full(len(data.time_s), "", dtype="U20")
    for each in sorted(set(part)):
        inside = part == each
        factors = fit_settings(data.design, data.time_s, data.settings, data.terms, ~inside)
        for text in sorted(set(texts[inside])):
            here = inside & (texts == text)
            pool = data.pools[here][0]
            used = factors.get(text, factors.get(pool))
            if used is None:
                continue
            found[OURS][here] = data.design[here] @ used
            for place in np.flatnonzero(here):
                grounds[place] = ground_of(parts_of(data.terms, used, data.design[place]))
            seen = ~inside & (texts == text) if (~inside & (texts == text)).any() else ~inside & (data.pools == pool)
            for method, base in ((ROOFLINE, data.bound_s), (UNFUSED, data.unfused_s), (CONSTANT, data.arithmetic_s)):
                found[method][here] = base[here] * np.nanmedian(data.time_s[seen] / base[seen])
    return LeftOut(found, grounds)


def scores_of(data: FitRows, predicted_s: Numbers) -> Numbers:
    """log(measured ÷ predicted) of each row; NaN where nothing was predicted."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(predicted_s > 0, np.log(data.time_s / predicted_s), np.nan)


def groups_of(data: FitRows, grounds: Words) -> Words:
    """The group of each row's interval: its pool and the ground that its prediction stands on."""
    return np.array([f"{pool} | {ground}" for pool, ground in zip(data.pools, grounds, strict=True)])


def inside_of(scores: Numbers, groups: Words, families: Words, clusters: NDArray[np.int_]) -> Chosen:
    """Whether each row lies in an interval calibrated on the rows of other clusters (parts of families, or devices)."""
    found = np.zeros(len(scores), bool)
    for each in sorted(set(clusters)):
        test = clusters == each
        intervals = by_group(scores[~test], groups[~test], families[~test])
        found[test] = covered(scores[test], groups[test], intervals)
    return found
