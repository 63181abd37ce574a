"""flopledger: the fraction of a device's peak that the training of a neural network uses, and why it is not more.

    import flopledger

    flopledger.count(model, inputs).model_flop            # exact FLOP of a step
    meter = flopledger.UtilizationMeter(model)            # MFU and more of a loop that runs
    flopledger.peak("NVIDIA H100 80GB HBM3", "bf16")      # a datasheet's dense peak, or None

This is the public interface: names are here or in `flopledger.lightning`, `flopledger.transformers` and
`flopledger.loggers`, and everything else may change. Importing it imports no torch; each name is loaded when it is
first asked for. FLOP are counted with a multiply-add as 2, times are in s, ratios run from 0 to 1, and unknown values
are None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.devices.format_peaks import MixedPeak, Peak, mixed_peak, peak, peak_refusal
    from measure.device.malloc import retain_freed_memory
    from measure.meter.meter import MeterOptions, MeterSummary, UtilizationMeter
    from measure.profile.step_profile import profile_step
    from measure.step import StepCount, ceilings, count, footprint, register
    from measure.trace.read import read as read_trace
    from results.errors import Inconsistent, Unavailable
    from results.store.reading import read_run as load_run
    from runners.formula import StepFormulas, formula

    __version__: str

__all__ = [
    "Inconsistent",
    "MeterOptions",
    "MeterSummary",
    "MixedPeak",
    "Peak",
    "StepCount",
    "StepFormulas",
    "Unavailable",
    "UtilizationMeter",
    "ceilings",
    "count",
    "footprint",
    "formula",
    "load_run",
    "mixed_peak",
    "peak",
    "peak_refusal",
    "profile_step",
    "read_trace",
    "register",
    "retain_freed_memory",
]

_LOCATIONS = {
    "__version__": "results.version:VERSION",
    "Inconsistent": "results.errors:Inconsistent",
    "MeterOptions": "measure.meter.meter:MeterOptions",
    "MeterSummary": "measure.meter.meter:MeterSummary",
    "MixedPeak": "analysis.devices.format_peaks:MixedPeak",
    "Peak": "analysis.devices.format_peaks:Peak",
    "StepCount": "measure.step:StepCount",
    "StepFormulas": "runners.formula:StepFormulas",
    "Unavailable": "results.errors:Unavailable",
    "UtilizationMeter": "measure.meter.meter:UtilizationMeter",
    "ceilings": "measure.step:ceilings",
    "count": "measure.step:count",
    "footprint": "measure.step:footprint",
    "formula": "runners.formula:formula",
    "load_run": "results.store.reading:read_run",
    "mixed_peak": "analysis.devices.format_peaks:mixed_peak",
    "peak": "analysis.devices.format_peaks:peak",
    "peak_refusal": "analysis.devices.format_peaks:peak_refusal",
    "profile_step": "measure.profile.step_profile:profile_step",
    "read_trace": "measure.trace.read:read",
    "register": "measure.step:register",
    "retain_freed_memory": "measure.device.malloc:retain_freed_memory",
}


def __getattr__(name: str) -> Any:
    if name not in _LOCATIONS:
        raise AttributeError(f"module 'flopledger' has no attribute {name!r}")
    from results.process import load

    globals()[name] = value = load(_LOCATIONS[name])
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
