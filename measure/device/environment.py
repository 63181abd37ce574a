"""What machine and what software a measurement was taken with: facts for the manifest, none of them a verdict.

Everything here reads and nothing sets. What a machine does not offer is None, never an exception: a missing file, an
unknown processor, a torch that cannot be imported. torch is imported only inside `torch_facts`, `environment` and
`device_facts`; `host_facts`, `package_facts` and `overrides` are for processes that must stay without it.

It does not claim that the machine was idle or its clock constant while a cell ran: load and governor are one reading.
The precision flags are read by `measure/device/apply_precision.py`, the GPU's state by `measure/device/telemetry.py`.
Serial numbers are hashed, and variables that may hold a secret are left out.
"""

import importlib.metadata
import importlib.util
import os
import platform
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.devices.peaks import is_stand_in
from measure.device.torch_build import torch_build
from results.errors import Unavailable, one_line
from results.text_files import hashed

ROOT = Path("/")
"""Where /proc, /sys and /etc are read; tests point it elsewhere."""

PACKAGES = ("torch", "torchvision", "triton", "nvtx", "nvidia-ml-py", "fvcore", "ptflops", "numpy")

VARIABLE_PREFIXES = (
    "PYTORCH_", "CUDA_", "TORCH", "CUDNN_", "CUBLAS_", "NCCL_", "OMP_", "MKL_", "KMP_", "GOMP_", "MALLOC_",
)  # fmt: skip
PRELOADED = "LD_PRELOAD"
VARIABLES = (
    "NVIDIA_TF32_OVERRIDE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "GLIBC_TUNABLES",
    PRELOADED,
)
"""Environment variables that change what torch computes with, or how fast."""

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")

OVERRIDES = ("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE")
"""Variables that change the precision of fp32 products behind torch's flags: no getter shows them."""

ISA_FLAGS = (
    "fma",
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "asimd",
    "sve",
)


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Operating system, processor, load and the variables that matter; memory in bytes. None: the host does not say."""

    python: str | None = None
    os: str | None = None
    kernel: str | None = None
    machine: str | None = None
    container: str | None = None
    cpu: str | None = None
    cpu_logical: int | None = None
    cpu_physical: int | None = None
    cpu_usable: int | None = None
    cpu_quota: float | None = None
    cpu_isa: Mapping[str, bool] | None = None
    host_memory_bytes: int | None = None
    governor: str | None = None
    load_1min: float | None = None
    driver: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    """What only torch itself can say. torch_error: why it could not be imported; most of the rest is None then."""

    torch: str | None = None
    cuda: str | None = None
    hip: str | None = None
    cudnn: int | None = None
    cuda_available: bool | None = None
    cuda_devices: int | None = None
    torch_threads: int | None = None
    torch_interop_threads: int | None = None
    torch_cpu_capability: str | None = None
    mkldnn: bool | None = None
    torch_error: str | None = None


@dataclass(frozen=True, kw_only=True)
class DeviceProperties:
    """What a device is: name, sizes, clocks; frequencies in Hz, sizes in bytes. What does not apply to it is None.

    The clock is the highest that the driver reports, not the present one. error: why nothing else is known.
    """

    device: str | None = None
    name: str | None = None
    stand_in: bool | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    memory_bus_bits: int | None = None
    uuid_hash: str | None = None
    physical_cores: int | None = None
    logical_cores: int | None = None
    isa: Mapping[str, bool] | None = None
    threads: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Host, packages and torch; the values of one reading. packages: name → version."""

    host: HostFacts = field(default_factory=HostFacts)
    packages: Mapping[str, str | None] = field(default_factory=dict)
    torch: TorchFacts = field(default_factory=TorchFacts)

    def as_json(self) -> Mapping[str, Any]:
        """All of it as one JSON object. No key is one of a device's."""
        return {**vars(self.host), **self.packages, **vars(self.torch)}


def environment() -> Environment:
    """All facts of host, packages and torch."""
    return Environment(host=host_facts(), packages=package_facts(), torch=torch_facts())


def host_facts() -> HostFacts:
    """Operating system, processor, load and the variables that matter. Imports no torch."""
    fields = dict(line.split("=", 1) for line in _read("etc/os-release").splitlines() if "=" in line)
    return HostFacts(
        python=platform.python_version(),
        os=fields.get("PRETTY_NAME", "").strip('"') or platform.system() or None,
        kernel=platform.release() or None,
        machine=platform.machine() or None,
        container=container(),
        cpu=cpu_name(),
        cpu_logical=os.cpu_count(),
        cpu_physical=physical_cores(),
        cpu_usable=_usable_cpus(),
        cpu_quota=cpu_quota(),
        cpu_isa=isa_flags(),
        host_memory_bytes=_memory_bytes(),
        governor=governor(),
        load_1min=load_average(),
        driver=driver_version(),
        variables=variables(),
    )


def package_facts() -> dict[str, str | None]:
    """Versions of the packages that decide the result, and the CUDA that torch was built for. Imports no torch."""
    return {**{name.replace("-", "_"): package_version(name) for name in PACKAGES}, "cuda": torch_cuda_build()}


def torch_facts() -> TorchFacts:
    """What only torch itself can say. Imports torch; if that fails, what the packages say of it, and why."""
    readings: dict[str, Callable[[Any], Any]] = {
        "torch": lambda torch: str(torch.__version__),
        "cuda": lambda torch: torch.version.cuda,
        "hip": lambda torch: getattr(torch.version, "hip", None),
        "cudnn": lambda torch: torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        "cuda_available": lambda torch: torch.cuda.is_available(),
        "cuda_devices": lambda torch: torch.cuda.device_count(),
        "torch_threads": lambda torch: torch.get_num_threads(),
        "torch_interop_threads": lambda torch: torch.get_num_interop_threads(),
        "torch_cpu_capability": lambda torch: torch.backends.cpu.get_cpu_capability(),
        "mkldnn": lambda torch: torch.backends.mkldnn.is_available(),
    }
    try:
        import torch
    except Exception as fault:  # noqa: BLE001 - a broken installation raises anything; it becomes a fact
        return TorchFacts(torch=package_version("torch"), cuda=torch_cuda_build(), torch_error=_line(fault))
    return TorchFacts(**{name: _try(read, torch) for name, read in readings.items()})


def device_facts(device: str) -> DeviceProperties:
    """What the device is. device: "cpu", "cuda" or "cuda:1". Imports torch."""
    return (
        DeviceProperties(
            device=device,
            name=cpu_name(),
            stand_in=False,
            memory_bytes=_memory_bytes(),
            physical_cores=physical_cores(),
            logical_cores=os.cpu_count(),
            isa=isa_flags(),
            threads=torch_facts().torch_threads,
        )
        if device.startswith("cpu")
        else _cuda_properties(device)
    )


def host_state() -> dict[str, Any]:
    """What makes times on this host scatter, as of now: load, governor, and how many processors may be used."""
    return {"load_1min": load_average(), "governor": governor(), "cpu_usable": _usable_cpus()}


def overrides() -> list[str]:
    """Variables that are set and change fp32 products unseen by torch's flags, as "NAME=value".

    While the list is not empty no fp32 or tf32 cell can be trusted to be what its flags say.
    """
    return [f"{name}={os.environ[name]}" for name in OVERRIDES if os.environ.get(name)]


def variables() -> dict[str, str]:
    """The environment variables that change what torch does, by name; uuids of devices in them are hashed, and
    libraries are named without their folders."""
    found = {
        name: re.sub(r"(GPU|MIG)-[0-9a-fA-F-]{36}", lambda found: f"{found.group(1)}-{hashed(found.group(0))}", value)
        for name, value in sorted(os.environ.items())
        if (name in VARIABLES or name.startswith(VARIABLE_PREFIXES)) and SECRET.search(name) is None
    }
    if PRELOADED in found:
        found[PRELOADED] = ":".join(os.path.basename(path) for path in re.split(r"[:\s]+", found[PRELOADED]) if path)
    return found


def cpu_name() -> str | None:
    """The processor's own model string."""
    for line in _read("proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "cpu model", "Model"):
            return " ".join(value.split()) or None
    return platform.processor() or None


def physical_cores() -> int | None:
    """Cores, counting two hardware threads of one core once."""
    cores = set()
    for processor in _read("proc/cpuinfo").split("\n\n"):
        fields = dict(re.findall(r"^(physical id|core id)\s*:\s*(\d+)", processor, re.MULTILINE))
        if "core id" in fields:
            cores.add((fields.get("physical id"), fields["core id"]))
    return len(cores) or None


def isa_flags() -> dict[str, bool] | None:
    """Which vector and matrix instructions the processor has; None if it does not say."""
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", _read("proc/cpuinfo"), re.MULTILINE)
    if found is None:
        return None
    present = set(found.group(1).split())
    return {flag: flag in present for flag in ISA_FLAGS}


def governor() -> str | None:
    """The frequency governor of the first core; None in most virtual machines."""
    return _read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None


def load_average() -> float | None:
    """Runnable tasks, mean of the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def driver_version() -> str | None:
    """NVIDIA's kernel driver, from /proc, which needs no library and no permission; else from NVML: Windows' Linux and
    sandboxes that have a /proc of their own lack the file, and two sessions are comparable only by this version."""
    found = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", _read("proc/driver/nvidia/version"))
    if found:
        return found.group(1)
    from measure.device import nvml

    try:
        return nvml.driver_version()
    except Unavailable:
        return None


def container() -> str | None:
    """The kind of container this process runs in; None if nothing shows one."""
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    for mark, kind in (("run/.containerenv", "podman"), (".dockerenv", "docker")):
        if (ROOT / mark).exists():
            return kind
    found = re.search(r"kubepods|docker|libpod|lxc|containerd", _read("proc/1/cgroup"))
    by_systemd = os.environ.get("container")  # noqa: SIM112 - its name is in lower case
    return by_systemd or (found.group(0) if found else None)


def package_version(name: str) -> str | None:
    """The installed version by its metadata, without importing it."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def torch_cuda_build() -> str | None:
    """The CUDA version that torch was built for, read from its files; None for a CPU-only build or no torch."""
    return torch_build("cuda")


def _cuda_properties(device: str) -> DeviceProperties:
    try:
        import torch

        properties = torch.cuda.get_device_properties(torch.device(device))
    except Exception as fault:  # noqa: BLE001 - no torch, no CUDA build, no driver, no such device: all become a fact
        return DeviceProperties(device=device, error=_line(fault))
    uuid = getattr(properties, "uuid", None)
    return DeviceProperties(
        device=device,
        name=properties.name,
        stand_in=is_stand_in(properties.name),
        compute_capability=f"{properties.major}.{properties.minor}",
        multiprocessors=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        l2_bytes=getattr(properties, "L2_cache_size", None),
        clock_hz=_scaled(getattr(properties, "clock_rate", None), 1000),  # kHz
        memory_clock_hz=_scaled(getattr(properties, "memory_clock_rate", None), 1000),
        memory_bus_bits=getattr(properties, "memory_bus_width", None),
        uuid_hash=hashed(str(uuid)) if uuid else None,
    )


def _usable_cpus() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def cpu_quota() -> float | None:
    """How many processors' time the container may use (cgroup v2, else v1); None without a limit."""
    quota, _, period = _read("sys/fs/cgroup/cpu.max").strip().partition(" ")
    if not quota:
        quota = _read("sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip()
        period = _read("sys/fs/cgroup/cpu/cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None


def _memory_bytes() -> int | None:
    found = re.search(r"^MemTotal:\s*(\d+) kB", _read("proc/meminfo"), re.MULTILINE)
    return int(found.group(1)) * 1024 if found else None


def _read(path: str) -> str:
    return _text(ROOT / path)


def _text(path: Path) -> str:
    """A file's text, or "" where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _try(read: Callable[[Any], Any], module: Any) -> Any:
    try:
        return read(module)
    except Exception:  # noqa: BLE001 - a reading that this version or build lacks is unknown, which is None
        return None


def _scaled(value: float | None, factor: int) -> int | None:
    return None if value is None else int(value * factor)


def _line(fault: BaseException) -> str:
    """An exception as one line."""
    return one_line(f"{type(fault).__name__}: {fault}", 300)
