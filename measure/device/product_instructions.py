"""Which instructions a CPU's libraries run convolutions and matrix products with, as they say themselves.

oneDNN and MKL print a line for each call while their verbose mode is on; it is on for one untimed step. A line of
oneDNN names the implementation ("brg_conv_fwd:avx10_1_512_amx") and the dtypes; MKL names its instructions once in a
process, with its first line. What a dtype ran on follows: bf16 by "avx10_1_512_amx" on AMX, by "avx512_core" on nothing
but conversions around fp32.

Not claimed: what is printed by neither (torch's own kernels, Arm's Compute Library) is in no answer. A verbose call
takes longer, so no time is taken meanwhile.
"""

import collections
import contextlib
import ctypes
import os
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping

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


@contextlib.contextmanager
def log() -> Iterator[list[str]]:
    """oneDNN's and MKL's verbose modes on inside; afterwards the list has their lines, for `instructions`.

    What else this process prints to standard output meanwhile is printed afterwards. Where there is no standard output
    to read the libraries' words from, the list stays empty.
    """
    import torch

    lines: list[str] = []
    with _captured(lines), contextlib.ExitStack() as verbose:
        if torch.backends.mkldnn.is_available():
            verbose.enter_context(torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON))
        if torch.backends.mkl.is_available():
            verbose.enter_context(torch.backends.mkl.verbose(torch.backends.mkl.VERBOSE_ON))
        yield lines
    for line in lines:
        if not line.startswith(("onednn_verbose", "MKL_VERBOSE")):
            print(line)


def instructions(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """What the lines of both libraries say of products: "kind/dtype" → instructions, each once, sorted."""
    names_of = collections.defaultdict(set)
    for line in lines:
        for key, name in _of_line(line):
            names_of[key].add(name)
    return {key: tuple(sorted(names)) for key, names in sorted(names_of.items())}


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
        dtype = next((word for word in dtypes if word != "f32"), dtypes[0])
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
        stdout = os.dup(1)
    except OSError:
        yield
        return
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            libc.fflush(None)
            os.dup2(stdout, 1)
            os.close(stdout)
            file.seek(0)
            lines += file.read().decode("utf-8", "replace").splitlines()
