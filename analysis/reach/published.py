"""Reads step times that others published, and selects those nearest to a model on a device.

`published_rows` returns the table of all rows. `nearest_steps` takes a model, a device and a mode, and returns the best
rows of the same model. Without such rows, it returns those of the model's family, of other devices or of other models.
Not claimed: that published rows are a fair sample.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from analysis.devices.peaks import Device, lookup

TABLE = Path(__file__).with_name("published_steps.csv.gz")
"""The published rows, written by `python -m benchmarks.reach import`."""

MOST = 5
"""Maximum number of rows that `nearest_steps` returns."""

OWN, FAMILY, ELSEWHERE, OTHERS = "this model", "models of its family", "this model on other devices", "other models"

OTHER_NAMES: Mapping[str, str] = {
    "vit": "vision_transformer",
    "swin": "swin_transformer",
    "maxvit": "maxxvit",
    "mobilenetv2": "efficientnet",
    "mnasnet": "efficientnet",
    "wideresnet": "resnet",
    "resnext": "resnet",
    "inceptionv3": "inception_v3",
}
"""Prefix of a model's name, in lower case without underscores → the module of timm that builds such models."""


@functools.cache
def published_rows() -> pd.DataFrame:
    """Return every row of TABLE, in SI units. Unknown texts are empty, unknown numbers NaN."""
    rows = pd.read_csv(
        TABLE,
        keep_default_na=False,
        na_values={name: [""] for name in ("batch_size", "image_size", "step_time_s", "model_flop", "bound_time_s")},
    )
    source = rows["source"] + ": " + rows["file"] + ", row " + rows["row"].astype(str)
    return rows.assign(source_name=rows["source"], source=source)


def nearest_steps(model: str, device: Device, mode: str, only_compiled: bool = False) -> tuple[str, pd.DataFrame]:
    """Return (relation, best row of each model, device, precision and layout, at most MOST). The relation is the first
    of OWN, FAMILY, ELSEWHERE and OTHERS that has rows in this mode, or "" if none has. The rows of all but ELSEWHERE
    are of this device."""
    rows = published_rows()
    family, own = family_of(rows, model), _same_model(rows, model)
    rows = rows[(rows["mode"] == mode) & (rows["compiled"] | (not only_compiled))]
    own, of_family = own[rows.index], (rows["family"] == family) & (family != "")
    here = rows["device"].isin([name for name in rows["device"].unique() if lookup(name) == device])
    for what, chosen in ((OWN, own & here), (FAMILY, of_family & here), (ELSEWHERE, own), (OTHERS, here)):
        if chosen.any():
            best = rows[chosen].sort_values("utilization_ratio", ascending=False, kind="stable")
            return what, best.drop_duplicates(["counted_model", "device", "precision", "layout"]).head(MOST)
    return "", rows.head(0)


def family_of(rows: pd.DataFrame, model: str) -> str:
    """Return the family of a model: that of its rows, else the one that its name begins with; empty where there is
    none."""
    if len(own := rows["family"][_same_model(rows, model) & (rows["family"] != "")]):
        return str(own.iloc[0])
    families = set(rows["family"]) - {""}
    names = {_plain(family): family for family in families}
    names |= {start: family for start, family in OTHER_NAMES.items() if family in families}
    best = max((start for start in names if _plain(model).startswith(start)), key=len, default="")
    return str(names.get(best, ""))


def _same_model(rows: pd.DataFrame, model: str) -> pd.Series[bool]:
    """Select the rows of this model, by the counted or the printed name, in any spelling."""
    wanted = _plain(model)
    names = {name for column in ("counted_model", "model") for name in rows[column].unique() if _plain(name) == wanted}
    return rows["counted_model"].isin(names) | rows["model"].isin(names)


def _plain(model: str) -> str:
    """Strip a model's name of its source ("timm:"), its weights' tag (".a1_in1k") and separators."""
    return re.sub(r"[\W_]", "", re.split(r"[:/]", model)[-1].partition(".")[0].lower())
