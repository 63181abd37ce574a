"""How each package is asked for the peak of a device in a format: a function for each, by the package's own function.

What a definition needs of other packages is put in its place here, and is all that is: `torch` as names of dtypes and a
device of the asked name, loggers that say nothing, no `lspci`. FLOP/s; None: the package gives no figure.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

from measure.peak_tables.definitions import definitions
from measure.peak_tables.sources import TABLES
from results import Unavailable

TORCH_DTYPE = {
    "bf16": sys.intern("torch.bfloat16"),
    "fp16": sys.intern("torch.float16"),
    "fp32": sys.intern("torch.float32"),
    "tf32": sys.intern("torch.float32"),
    "fp8": sys.intern("torch.float8_e4m3fn"),
    "int8": sys.intern("torch.int8"),
}


@dataclass(frozen=True)
class AskedDevice:
    """The device that a package is asked about; what a driver would tell of it, None where that is not known here."""

    name: str
    compute_capability: str = ""
    multiprocessors: int | None = None
    clock_hz: float | None = None


class _Torch(ModuleType):
    """What definitions take from torch: a dtype is the text of its name, and the device is the asked one."""

    def __init__(self, device: AskedDevice, matmul: str = "highest") -> None:
        super().__init__("torch")
        self.cuda = SimpleNamespace(
            is_available=lambda: True,
            get_device_name=lambda *_: device.name,
            current_device=lambda: 0,
            get_device_capability=lambda *_: _capability(device),
            get_device_properties=lambda *_: _properties(device),
        )
        self.get_float32_matmul_precision = lambda: matmul
        self.dtype = str

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return sys.intern(f"torch.{name}")  # dtypes are compared by `is`


def _capability(device: AskedDevice) -> tuple[int, int]:
    major, _, minor = device.compute_capability.partition(".")
    if not (major.isdecimal() and minor.isdecimal()):
        raise Unavailable("it asks for a compute capability, which this device has none of")
    return int(major), int(minor)


def _properties(device: AskedDevice) -> SimpleNamespace:
    major, minor = _capability(device)
    if device.multiprocessors is None or device.clock_hz is None:
        raise Unavailable("it asks for multiprocessors and clock, which are not known here")
    return SimpleNamespace(
        major=major,
        minor=minor,
        multi_processor_count=device.multiprocessors,
        clock_rate=device.clock_hz / 1e3,
        max_compute_units=device.multiprocessors,
    )


def _quiet(*_: Any, **__: Any) -> None:
    """A logger's place."""


_LOGGER = SimpleNamespace(warning=_quiet, info=_quiet, debug=_quiet)


def _no_program(*_: Any, **__: Any) -> None:
    raise FileNotFoundError("no program is started here")


def _namespace(package: str, text: str, device: AskedDevice, **more: Any) -> dict[str, Any]:
    import dataclasses
    import typing

    _standing({"peak_table": {}})  # a dataclass looks for its module
    given = {
        "__name__": "peak_table",
        "torch": _Torch(device),
        "logger": _LOGGER,
        "log": _LOGGER,
        "re": re,
        "math": math,
        "warnings": SimpleNamespace(warn=_quiet),
        "subprocess": SimpleNamespace(run=_no_program, PIPE=None),
        "dataclass": dataclasses.dataclass,
        **{name: getattr(typing, name) for name in ("Any", "Optional", "Union", "Literal", "Callable")},
        **more,
    }
    return definitions(text, TABLES[package].names, given)


def _standing(modules: Mapping[str, Mapping[str, Any]]) -> None:
    """Puts modules in the place of those that a definition imports when it is called. For the asking process alone."""
    for name, members in modules.items():
        module = ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module


def _fabric(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    _standing({"lightning_fabric.accelerators.cuda": {"_is_ampere_or_later": lambda *_: _capability(device) >= (8, 0)}})
    torch = _Torch(device, "high" if dtype == "tf32" else "highest")
    space = _namespace(package, text, device, torch=torch, rank_zero_warn=_quiet)
    answer = space["get_available_flops"](SimpleNamespace(type="cuda"), TORCH_DTYPE[dtype])
    return None if answer is None else float(answer)


def _composer(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    space = _namespace(package, text, device, is_xla_installed=lambda: False)
    word = dtype if dtype == "fp32" else f"amp_{dtype}"
    return float(space["get_gpu_flops_available"](SimpleNamespace(precision=SimpleNamespace(value=word)))) or None


def _torchtitan(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    return float(_namespace(package, text, device)["get_peak_flops"](device.name))


def _inductor(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    ask = _namespace(package, text, device)["datasheet_tops"]
    answer = ask(TORCH_DTYPE[dtype], is_tf32=dtype == "tf32", device_name=device.name)
    return None if answer is None else float(answer) * 1e12


def _gpu_limits(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    limits = _namespace(package, text, device)["GPULimits"](None)
    return float(limits.get_tflops_per_second(TORCH_DTYPE[dtype], use_tensor_cores=True)) * 1e12


def _triton_testing(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    properties = _properties(device)
    counts = {"multiprocessor_count": properties.multi_processor_count}
    utils = SimpleNamespace(get_device_properties=lambda _: counts)
    driver = SimpleNamespace(active=SimpleNamespace(utils=utils))
    _standing({"triton_here": {}, "triton_here.runtime": {"driver": driver}})
    sys.modules["torch"] = _Torch(device)
    language = SimpleNamespace(float8e4nv="torch.float8_e4m3fn", float8e4b15="b15", float8e5="e5")
    space = _namespace(package, text, device, tl=language, __package__="triton_here")
    return float(space["get_max_tensorcore_tflops"](TORCH_DTYPE[dtype], properties.clock_rate)) * 1e12


def _trl(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    answer = _namespace(package, text, device)["get_peak_flops"](device.name, TORCH_DTYPE[dtype].removeprefix("torch."))
    return None if answer is None else float(answer)


def _verl(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    space = _namespace(package, text, device, get_torch_device=_quiet)
    return float(space["get_device_flops"]("T", device_name=device.name)) * 1e12


def _veomni(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    return float(_namespace(package, text, device, get_device_name=lambda: device.name)["get_device_flops"]("T")) * 1e12


def _swift(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    space = _namespace(package, text, device, TrainerCallback=object)
    ask = space["PerfMetricsLogCallback"]._retrieve_flops_from_map
    answer = ask(SimpleNamespace(get_device_name=lambda: device.name))
    return None if answer is None else float(answer)


def _olmo_core(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    answer = _namespace(package, text, device)["get_device_peak_flops_per_second"](
        device.name, using_half_precision=True
    )
    return None if answer is None else float(answer)


def _fray(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    answer = _namespace(package, text, device)["device_flops_for_jax_device"](device.name, dtype)
    return None if answer is None else float(answer)


def _nanogpt(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    """The constant that its `estimate_mfu` assigns to `flops_promised`."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
            continue
        if [ast.unparse(target) for target in node.targets] == ["flops_promised"]:
            return float(ast.literal_eval(node.value))
    raise Unavailable("the file has no flops_promised")


def _llm_c(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    """TFLOP/s of an architecture × cores ÷ its cores × clock ÷ its clock, by exact name (get_flops_promised)."""
    number = r"(-?[\d.]+)f?"
    kinds = {
        name: [float(each) for each in re.findall(number, body)]
        for name, body in re.findall(r"static const PerfData (\w+) = \{([^}]*)\}", text)
    }
    rows = re.findall(rf'\{{"([^"]+)", &(\w+), {number}, {number}\}}', text)
    if not kinds or not rows:
        raise Unavailable("its table was not found in the file")
    column = {"tf32": 0, "bf16": 1, "fp16": 2}[dtype]
    for name, kind, cores, mhz in rows:
        if name == device.name:
            value = kinds[kind][column]
            scale = float(cores) / kinds[kind][7] * float(mhz) / kinds[kind][6]
            return value * scale * 1e12 if value > 0 else None
    return None


QUESTIONS: Mapping[str, Callable[[str, str, AskedDevice, str], float | None]] = {
    "fabric": _fabric,
    "composer": _composer,
    "torchtitan": _torchtitan,
    "inductor": _inductor,
    "gpu_limits": _gpu_limits,
    "triton_testing": _triton_testing,
    "trl": _trl,
    "verl": _verl,
    "veomni": _veomni,
    "swift": _swift,
    "olmo_core": _olmo_core,
    "fray": _fray,
    "nanogpt": _nanogpt,
    "llm_c": _llm_c,
}


def answer(package: str, text: str, device: AskedDevice, dtype: str) -> float | None:
    """What a package says, in FLOP/s; None for no figure (None, 0 and infinity). Raises what its function raises."""
    said = QUESTIONS[TABLES[package].question](package, text, device, dtype)
    return said if said is not None and 0 < said < math.inf else None
