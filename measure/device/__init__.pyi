from .cpu_contention import Neighbours, Used, ratio_of, warning
from .cpu_energy import package_temperature_c
from .cpu_identity import Allowance, allowance, cache_bytes, processor
from .environment import DeviceProperties, Environment, HostFacts, device_facts, host_state
from .processes import (
    LAST_WORDS,
    PRELOAD,
    accept_interrupts,
    context,
    end_of,
    end_with,
    last_words,
    prepare,
    redirect,
)
from .product_instructions import Log
from .telemetry import DeviceTelemetry, Processes, Sampler, appeared, open_device

__all__ = [
    "Allowance",
    "DeviceProperties",
    "DeviceTelemetry",
    "Environment",
    "HostFacts",
    "LAST_WORDS",
    "Log",
    "Neighbours",
    "PRELOAD",
    "Processes",
    "Sampler",
    "Used",
    "accept_interrupts",
    "allowance",
    "appeared",
    "cache_bytes",
    "context",
    "device_facts",
    "end_of",
    "end_with",
    "host_state",
    "last_words",
    "open_device",
    "package_temperature_c",
    "prepare",
    "processor",
    "ratio_of",
    "redirect",
    "warning",
]
