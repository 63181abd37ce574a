"""The stand-in device: its libraries, built with gcc, and the environment that gives them to a process.

`build(folder)` compiles `device/*.c` against the public headers that torch's wheels bring; nothing of NVIDIA's is
copied into the repository. Names that a real library exports and ours does not are filled up with functions that answer
"not supported" and write their name into a file, so that a test which calls one fails by it.

`StandIn(libraries, folder, plan)` is one device: `environment()` for its processes, `state()` for what they did,
`missing()` for what they asked for in vain. Raises ValueError for a quantity that `plan.def` does not know.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

SOURCES = Path(__file__).parent
ROOT = Path(__file__).parents[3]

LONGEST_S = 550
"""Of a command, on a machine with ten times as much to do as it has processors; less than pytest's own limit."""

LONGEST_TASK_S = 60
"""Of one task, on a busy machine; and of the imports before them."""

MAX_DEVICES, MAX_PROCESSES = 8, 64


@dataclass(frozen=True)
class Library:
    """soname: what torch asks for. real: folder (under site-packages/nvidia) of the library whose names we fill up.

    refusal: what a call that is not there answers ("not supported", in each library's own numbers). preloaded: torch's
    own search path comes before LD_LIBRARY_PATH, so that its libraries are replaced by name; the driver's are not its.
    """

    soname: str
    sources: tuple[str, ...]
    refusal: int
    real: str = ""
    preloaded: bool = True


CUDART = ("plan", "work", "errors", "device", "memory", "streams", "kernels", "graphs")
LIBRARIES = (
    Library("libcudart.so.13", CUDART, 801, "cu13/lib"),
    Library("libcublasLt.so.13", ("cublasLt",), 15, "cu13/lib"),
    Library("libcublas.so.13", ("cublas",), 15, "cu13/lib"),
    Library("libcudnn.so.9", ("cudnn", "cudnn_layers"), 3000, "cudnn/lib"),
    Library("libcupti.so.13", ("cupti",), 27, "cu13/lib"),
    Library("libcuda.so.1", ("cuda",), 801, preloaded=False),
    Library("libnvidia-ml.so.1", ("nvml",), 3, preloaded=False),
)

FLAGS = ("-shared", "-fPIC", "-O1", "-std=gnu11", "-fvisibility=hidden", "-w")
"""-w: the headers themselves warn; most parameters of a stand-in's functions are not used."""

ACTIVITY_RECORDS = {"KERNEL_RECORD": "Kernel", "MEMCPY_RECORD": "Memcpy", "MEMSET_RECORD": "Memset"}
"""Macro → the record's name in cupti_activity.h without its version: the newest in the headers is what CUPTI writes."""


class Absent(Exception):
    """No compiler or no headers: the reason why there can be no stand-in here."""


def site() -> Path:
    """The folder that holds torch's wheels."""
    return Path(sysconfig.get_path("purelib"))


def include_folders(written: Path) -> list[Path]:
    """Where CUDA's and cuDNN's public headers are. written: a folder of ours for what wheels lack. Raises Absent."""
    folders = [site() / "nvidia/cu13/include", site() / "nvidia/cudnn/include"]
    folders.append(site() / "triton/backends/nvidia/include")  # cuda.h, where the runtime's wheel has none
    # Some wheels' cuda_fp16.h include nv/target, a header for device code that they do not bring: an empty one will do.
    if not any((path / "nv/target").is_file() for path in folders):
        (written / "nv").mkdir(parents=True, exist_ok=True)
        (written / "nv/target").touch()
        folders.append(written)
    for name in ("cuda_runtime_api.h", "cublas_v2.h", "cublasLt.h", "cudnn.h", "cupti.h", "cuda.h"):
        if not any((folder / name).is_file() for folder in folders):
            raise Absent(f"no header {name} under site-packages/nvidia (a CUDA 13 build of torch brings it)")
    return folders


def build(folder: Path) -> Path:
    """Compile all libraries into `folder` and return it. Raises Absent without gcc, nm or headers."""
    for tool in ("gcc", "nm"):
        if shutil.which(tool) is None:
            raise Absent(f"no {tool} on PATH")
    folder.mkdir(parents=True, exist_ok=True)
    includes = include_folders(folder / "include")
    for library in LIBRARIES:
        _build_one(library, folder, includes)
    return folder


def _build_one(library: Library, folder: Path, includes: list[Path]) -> None:
    """Sources → objects → the names that they define → a file of refusals for the others → the library."""
    where = [f"-I{path}" for path in (SOURCES, *includes)]
    macros = [f"-D{macro}={name}" for macro, name in _activity_records(includes).items()]
    objects = []
    for source in library.sources:
        objects.append(str(folder / f"{source}.o"))
        _run("gcc", *FLAGS, *where, *macros, "-c", str(SOURCES / f"{source}.c"), "-o", objects[-1])
    stem = library.soname.partition(".")[0]
    rest = folder / f"{stem}_refusals.c"
    rest.write_text(_refusals(library, wanted_names(library, includes) - defined_names(*objects)))
    versions = folder / f"{stem}.map"
    versions.write_text(f"{library.soname} {{ global: *; }};\n")
    linked = () if "cudart" in library.soname else (f"-L{folder}", "-l:libcudart.so.13")
    script = (f"-Wl,--version-script={versions}",) if library.real else ()
    target = ("-o", str(folder / library.soname), f"-Wl,-soname,{library.soname}", "-Wl,-rpath,$ORIGIN")
    _run("gcc", *FLAGS, f"-I{SOURCES}", *objects, str(rest), *script, *linked, *target, "-lpthread", "-ldl", "-lm")


def _activity_records(includes: list[Path]) -> dict[str, str]:
    text = next(path for path in (folder / "cupti_activity.h" for folder in includes) if path.is_file()).read_text()
    newest = {}
    for macro, name in ACTIVITY_RECORDS.items():
        versions = [int(number) for number in re.findall(rf"}} CUpti_Activity{name}(\d+);", text)]
        newest[macro] = f"CUpti_Activity{name}{max(versions)}"
    return newest


def wanted_names(library: Library, includes: list[Path]) -> set[str]:
    """What a program may ask of the real library: the names that it exports, or, for the driver's, those of its header
    and of pynvml, which are all that can be known where there is no driver."""
    if library.real:
        exported = defined_names("-D", str(site() / "nvidia" / library.real / library.soname))
        return {name for name in exported if re.match(r"(__)?(cuda|cublas|cudnn|cupti)", name)}
    if "cuda" in library.soname:
        header = next(path for path in (folder / "cuda.h" for folder in includes) if path.is_file())
        return set(re.findall(r"CUDAAPI (cu[A-Z]\w+)\(", header.read_text(errors="replace")))
    return set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', (site() / "pynvml.py").read_text(errors="replace")))


def defined_names(*arguments: str) -> set[str]:
    """Names that an object or (with -D) a library defines."""
    lines = _run("nm", "--defined-only", *arguments).splitlines()
    return {line.split()[-1].partition("@")[0] for line in lines if len(line.split()) == 3}


def refused_on_purpose() -> set[str]:
    """Names of device/refused.txt."""
    lines = (SOURCES / "refused.txt").read_text().splitlines()
    return {line.split()[0] for line in lines if line.strip() and not line.startswith("#")}


def _refusals(library: Library, names: set[str]) -> str:
    lines = ["/* Written by stand_in.py: every name that the real library exports and ours does not define. */"]
    lines.append('#include "standin.h"')
    for name in sorted(names):
        told = "" if name in refused_on_purpose() else f'standin_missing("{name}"); '
        lines.append(f"API int {name}(void) {{ {told}return {library.refusal}; }}")
    return "\n".join(lines) + "\n"


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:1])} failed:\n{done.stderr}")
    return done.stdout


# ---- one device ----


def quantities() -> dict[str, float]:
    """Name → default of everything that can be planned, as plan.def says."""
    return {
        name: float(default)
        for name, default in re.findall(r"^NUMBER\((\w+), ([\d.]+),", (SOURCES / "plan.def").read_text(), re.MULTILINE)
    }


class State(NamedTuple):
    """What the device's processes did: the first fields of `State` in standin.h. Bytes and ns."""

    magic: int
    launches: int
    flop_fp32: int
    flop_tf32: int
    flop_half: int
    flop_fp64: int
    busy_ns: int
    allocations: int
    peak_bytes: int
    contexts: int
    lost: int
    power_readings: int
    later: int
    graph_launches: int

    @property
    def flop(self) -> int:
        return self.flop_fp32 + self.flop_tf32 + self.flop_half + self.flop_fp64


def state_of(page: Path) -> State:
    """What a device's page says."""
    data = page.read_bytes() if page.exists() else b""
    return State(*struct.unpack_from(f"{len(State._fields)}Q", data.ljust(8 * len(State._fields), b"\0")))


class Task(NamedTuple):
    """A function of `device_tasks.py`, what it is called with, and the quantities of its own device."""

    function: str
    arguments: Sequence[Any] = ()
    plan: Mapping[str, float] = {}


@dataclass(frozen=True)
class StandIn:
    """A device with a plan (name of plan.def → value; `name`: whose datasheet it stands in for)."""

    libraries: Path
    folder: Path
    plan: dict[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = set(self.plan) - set(quantities()) - {"name"}
        if unknown:
            raise ValueError(f"expected quantities of plan.def, got {', '.join(sorted(unknown))}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.plan_file.write_text("".join(f"{name} {value}\n" for name, value in self.plan.items()))

    @property
    def plan_file(self) -> Path:
        return self.folder / "plan"

    def planned(self, name: str) -> float:
        """The quantity's value in this plan."""
        return float(self.plan.get(name, quantities()[name]))

    def environment(self) -> dict[str, str]:
        """Variables of a process that shall have the device, beside those of this process."""
        preloaded = [str(self.libraries / library.soname) for library in LIBRARIES if library.preloaded]
        return {
            **os.environ,
            "LD_PRELOAD": ":".join(preloaded),
            "LD_LIBRARY_PATH": str(self.libraries),
            "STANDIN_PLAN": str(self.plan_file),
            "STANDIN_STATE": str(self.folder / "state"),
            "STANDIN_MISSING": str(self.folder / "missing"),
            "PYTHONPATH": str(ROOT),
            "COLUMNS": "100",
            "CUDA_MODULE_LOADING": "LAZY",
            "OMP_NUM_THREADS": "1",
        }

    def run(
        self, *command: str, cwd: Path | None = None, timeout_s: float = LONGEST_S
    ) -> subprocess.CompletedProcess[str]:
        """The command with the device, its output kept."""
        environment = self.environment()
        return subprocess.run(
            command, cwd=cwd or self.folder, env=environment, capture_output=True, text=True, timeout=timeout_s
        )

    def tasks(self, asked: Mapping[str, Task]) -> dict[str, Any]:
        """The answers to tasks of `device_tasks.py`, each in a process whose device has this plan and the task's own
        quantities. Raises RuntimeError if one raises."""
        jobs = self.folder / "tasks"
        for name, task in asked.items():
            StandIn(self.libraries, jobs / name, {**self.plan, **task.plan}).plan_file.replace(jobs / f"{name}.plan")
            (jobs / f"{name}.json").write_text(
                json.dumps((f"tests.standin.programs.device_tasks:{task.function}", task.arguments))
            )
        program = str(ROOT / "tests/standin/programs/in_children.py")
        done = self.run(sys.executable, program, str(jobs), timeout_s=LONGEST_TASK_S * (1 + len(asked)))
        if done.returncode:
            raise RuntimeError(done.stderr)
        answers = json.loads(done.stdout)
        for name, answer in answers.items():
            if isinstance(answer, dict) and "raised" in answer:
                raise RuntimeError(f"{name}: {answer['raised']}")
        return answers

    def sweep(self, *words: object, timeout_s: float = LONGEST_S) -> subprocess.CompletedProcess[str]:
        """`runners.sweep` on the device, into the folder `run` beside its plan."""
        arguments = ("--device", "cuda", "--out", self.out, *words)
        return self.run(sys.executable, "-m", "runners.sweep", *map(str, arguments), timeout_s=timeout_s)

    @property
    def out(self) -> Path:
        """The run that `sweep` writes."""
        return self.folder / "run"

    def state(self) -> State:
        """What has been done on it until now; all zero before the first process."""
        return state_of(self.folder / "state")

    def missing(self) -> list[str]:
        """Calls that nobody has written, each once."""
        path = self.folder / "missing"
        return sorted(set(path.read_text().split())) if path.exists() else []
