from .cpu_contention import Neighbours, warning
from .environment import DeviceProperties, Environment, HostFacts, device_facts, host_state
from .processes import LAST_WORDS, PRELOAD, context, end_of, end_with, last_words, prepare, redirect
from .telemetry import DeviceTelemetry, Processes, Sampler, appeared, open_device

__all__ = [
    "DeviceProperties",
    "DeviceTelemetry",
    "Environment",
    "HostFacts",
    "LAST_WORDS",
    "Neighbours",
    "PRELOAD",
    "Processes",
    "Sampler",
    "appeared",
    "context",
    "device_facts",
    "end_of",
    "end_with",
    "host_state",
    "last_words",
    "open_device",
    "prepare",
    "redirect",
    "warning",
]
