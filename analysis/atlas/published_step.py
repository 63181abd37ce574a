"""A training or inference step that somebody else measured and published, with what we counted and bounded of it."""

from __future__ import annotations

from dataclasses import dataclass

from results.records import Record


@dataclass(frozen=True, kw_only=True)
class PublishedStep(Record):
    """One published measurement. Facts as the source prints them; counts and bounds are ours, unknown where empty.

    status: "ok", or why the row cannot be used: "no_model", "other_model", "not_counted", "invalid".
    """

    source: str
    commit: str
    file: str
    row: int  # of the file, from 1, without the header
    model: str  # as printed
    counted_model: str = ""  # what was built for it, in the words of --models
    family: str = ""  # of architectures: timm's module
    mode: str  # "train" or "infer"
    precision: str
    layout: str  # "channels_first" or "channels_last"
    framework: str
    compiled: bool = False
    device: str  # as drivers print it
    batch_size: int | None = None
    image_size: int | None = None
    step_time_s: float | None = None
    items_per_s: float | None = None
    published_parameters: float | None = None
    published_mac: float | None = None  # forward pass of one item, by the source's counter
    status: str = "ok"
    reason: str = ""
    parameters: int | None = None
    model_flop: int | None = None
    peak_flop_per_s: float | None = None
    utilization_ratio: float | None = None
    bound_time_s: float | None = None
    attainable_ratio: float | None = None
    unfused_time_s: float | None = None
    achieved_over_bound_ratio: float | None = None  # bound_time_s ÷ step_time_s
    devices: int = 1  # of the system; all else is of one of them
    sequence_length: int | None = None  # tokens of a text
    mean_power_w: float | None = None
    power_limit_w: float | None = None
    energy_per_item_j: float | None = None
