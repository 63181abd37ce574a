"""Which instructions a CPU's libraries run convolutions and matrix products with, as they say themselves.

oneDNN and MKL print a line for each call while their verbose mode is on; it is on for one untimed step. A line of
oneDNN names the implementation ("brg_conv_fwd:avx10_1_512_amx") and the dtypes; MKL names its instructions once in a
process, with its first line. What a dtype ran on follows: bf16 by "avx10_1_512_amx" on AMX, by "avx512_core" on nothing
but conversions around fp32.

Not claimed: what is printed by neither (torch's own kernels, Arm's Compute Library) is in no answer. A verbose call
takes longer, so no time is taken meanwhile.
"""

import contextlib
import ctypes
import functools
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from results.errors import Unavailable, one_line

EMULATED, REFERENCE, UNKNOWN = "emulated", "reference", "unknown"
"""Beside names of instructions: the dtype has none of its own there; plain loops; a name that is not known here."""

KINDS = {"convolution": "convolution", "deconvolution": "convolution", "matmul": "matmul", "inner_product": "matmul"}
"""oneDNN's primitives that are products → their kind in `Run.executed`."""

DTYPES = {"f32": "float32", "f64": "float64", "bf16": "bfloat16", "f16": "float16", "s8": "int8", "u8": "int8"}

_NATIVE: tuple[tuple[str, Mapping[str, str]], ...] = (
    (r"amx_fp16", {"bf16": "amx_bf16", "f16": "amx_fp16", "s8": "amx_int8", "u8": "amx_int8", "f32": "avx512f"}),
    (r"amx", {"bf16": "amx_bf16", "s8": "amx_int8", "u8": "amx_int8", "f32": "avx512f", "f16": "avx512_fp16"}),
    (
        r"avx10_\d_512|avx512_core_fp16",
        {"f32": "avx512f", "bf16": "avx512_bf16", "f16": "avx512_fp16", "s8": "avx512_vnni", "u8": "avx512_vnni"},
    ),
    (r"avx512_core_bf16", {"f32": "avx512f", "bf16": "avx512_bf16", "s8": "avx512_vnni", "u8": "avx512_vnni"}),
    (r"avx512_core_vnni", {"f32": "avx512f", "s8": "avx512_vnni", "u8": "avx512_vnni"}),
    (r"avx512", {"f32": "avx512f"}),
    (r"avx2_vnni", {"f32": "fma", "s8": "avx_vnni", "u8": "avx_vnni"}),
    (r"avx2", {"f32": "fma"}),
    (r"\bavx\b", {"f32": "avx"}),
    (r"sse41", {"f32": "sse2"}),
    (r"sve", {"f32": "sve"}),
    (r"asimd", {"f32": "asimd"}),
)
"""In an implementation's name, the first that is found → dtype → instructions; another dtype is emulated there."""

_MKL = (
    ("Advanced Vector Extensions 512", "avx512f"),
    ("Advanced Vector Extensions 2", "fma"),
    ("Advanced Vector Extensions", "avx"),
    ("Streaming SIMD", "sse2"),
)
_GEMM = {"SGEMM": "float32", "DGEMM": "float64"}

_mkl_instructions: list[str] = []
"""What MKL said in this process, once."""


@dataclass
class Log:
    """What was printed while it was on, and what follows of it. reason: why nothing is known, if so."""

    lines: list[str] = field(default_factory=list)
    reason: str = ""

    @property
    def instructions(self) -> dict[str, tuple[str, ...]]:
        """ "kind/dtype" → names, each once, sorted."""
        return instructions(self.lines)


@contextlib.contextmanager
def log() -> Iterator[Log]:
    """oneDNN's and MKL's verbose modes on inside; the log has their lines afterwards.

    What else this process prints to standard output meanwhile is printed afterwards.
    """
    import torch

    found = Log()
    try:
        with _captured(found.lines), contextlib.ExitStack() as verbose:
            if torch.backends.mkldnn.is_available():
                verbose.enter_context(torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON))
            if torch.backends.mkl.is_available():
                verbose.enter_context(torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON))
            yield found
    except Unavailable as fault:
        found.reason = str(fault)
    others = [line for line in found.lines if not line.startswith(("onednn_verbose", "MKL_VERBOSE"))]
    for line in others:
        print(line)


def attempt(run: Callable[[], None]) -> str:
    """Runs a small product; "" or, in a line, why this torch or processor does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a torch says what later ones will not have
            run()
    except (RuntimeError, NotImplementedError, AttributeError, ImportError) as fault:
        return one_line(str(fault), 200)
    return ""


def _products(dtype: str) -> None:
    import torch

    kind = getattr(torch, dtype)
    left, image = torch.ones(256, 256, dtype=kind), torch.ones(1, 64, 28, 28, dtype=kind)
    torch.mm(left, left)
    torch.nn.functional.conv2d(image, torch.ones(64, 64, 3, 3, dtype=kind), padding=1)


def _int8_products() -> None:
    import torch

    left, image = torch.ones(256, 256), torch.ones(1, 64, 28, 28)
    to_8_bits = functools.partial(torch.quantize_per_tensor, scale=0.1, zero_point=0)
    weight = to_8_bits(torch.ones(64, 64, 3, 3), dtype=torch.qint8)
    nn = torch.ao.nn.quantized.functional
    nn.linear(to_8_bits(left, dtype=torch.quint8), to_8_bits(left, dtype=torch.qint8))
    nn.conv2d(to_8_bits(image, dtype=torch.quint8), weight, torch.zeros(64), padding=1)


PRODUCTS: Mapping[str, Callable[[], None]] = {
    **{dtype: functools.partial(_products, dtype) for dtype in ("float32", "bfloat16", "float16")},
    "int8": _int8_products,
}
"""Dtype → a matrix product and a convolution of it, of less than 0.1 s. int8 as torch's quantized layers run it."""


def instructions(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What the lines of both libraries say of products: "kind/dtype" → instructions, each once, sorted."""
    found: dict[str, set[str]] = {}
    for line in lines:
        for key, name in _of_line(line):
            found.setdefault(key, set()).add(name)
    return {key: tuple(sorted(names)) for key, names in sorted(found.items())}


def _of_line(line: str) -> Iterator[tuple[str, str]]:
    if line.startswith("MKL_VERBOSE"):
        yield from _of_mkl(line)
        return
    parts = line.split(",")
    if not line.startswith("onednn_verbose") or "exec" not in parts:
        return
    _engine, primitive, implementation, *rest = parts[parts.index("exec") + 1 :]
    dtypes = re.findall(r"(?:src|wei):(\w+):", ",".join(rest))
    if primitive in KINDS and dtypes:
        dtype = next((each for each in dtypes if each != "f32"), dtypes[0])
        yield f"{KINDS[primitive]}/{DTYPES.get(dtype, dtype)}", of_implementation(implementation, dtype)


def of_implementation(implementation: str, dtype: str) -> str:
    """The instructions of one of oneDNN's implementations. dtype: as it prints it, bf16 of a mixed product."""
    if implementation.startswith(("ref", "simple")):
        return REFERENCE
    for pattern, by_dtype in _NATIVE:
        if re.search(pattern, implementation):
            return by_dtype.get(dtype, EMULATED)
    return UNKNOWN


def _of_mkl(line: str) -> Iterator[tuple[str, str]]:
    for words, name in _MKL:
        if words in line:
            _mkl_instructions[:] = [name]
            return
    call = re.match(r"MKL_VERBOSE (?:cblas_)?([A-Za-z]+?)(?:_BATCH\w*|_COMPACT)?\(", line)
    if call is not None and call[1].upper() in _GEMM:
        yield f"matmul/{_GEMM[call[1].upper()]}", _mkl_instructions[0] if _mkl_instructions else UNKNOWN


@contextlib.contextmanager
def _captured(lines: list[str]) -> Iterator[None]:
    """What C libraries and Python write to standard output goes into `lines`."""
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    try:
        kept = os.dup(1)
    except OSError as fault:  # there is no standard output
        raise Unavailable(f"no standard output to read the libraries' words from: {fault}") from fault
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            libc.fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()
