"""From executions of each address to operations on floating-point lanes, by kind. Decoded by capstone.

A vector instruction counts all lanes of its registers: lanes that hold nothing (the rest of a row, a masked load) are
executed, too. Conversions, moves, permutations and integer instructions are no arithmetic.

Not claimed: x87 instructions (fadd, fmul on its stack), which no kernel here uses; they are in no count.
"""

from __future__ import annotations

import importlib.util
import mmap
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from results import Unavailable

LONGEST_INSTRUCTION = 15
"""Bytes; Intel's manual, volume 2, section 2.3.11."""

_SCALAR_OR_PACKED = r"(?P<form>[sp])(?P<type>[sd])"
_KINDS: tuple[tuple[str, str], ...] = (
    ("fma", rf"v?fn?m(?:add|sub|addsub|subadd)(?:132|213|231)?{_SCALAR_OR_PACKED}"),
    ("mul", rf"v?mul{_SCALAR_OR_PACKED}"),
    ("add", rf"v?h?(?:add|sub|addsub){_SCALAR_OR_PACKED}"),
    ("div", rf"v?div{_SCALAR_OR_PACKED}"),
    ("sqrt", rf"v?sqrt{_SCALAR_OR_PACKED}"),
    ("reciprocal", rf"v?r(?:cp|sqrt){_SCALAR_OR_PACKED}"),
    ("min_max", rf"v?(?:min|max){_SCALAR_OR_PACKED}"),
    ("compare", rf"v?(?:u?comi|cmp[a-z_]*?){_SCALAR_OR_PACKED}"),
    ("round", rf"v?round{_SCALAR_OR_PACKED}"),
)
"""Kind → the mnemonics of SSE, AVX and FMA that are of it."""

UNREAD = "unread"
"""The kind of an address whose bytes are not known."""

_WIDTHS = (("zmm", 512), ("ymm", 256), ("xmm", 128))
_BITS = {"s": 32, "d": 64}

Execution = tuple[str, int]
"""(file of the object, "" where the code was generated; address in the object, or in the process)."""


def lanes_of(mnemonic: str, operands: str) -> tuple[str, int] | None:
    """(kind, lanes) of an instruction as capstone prints it; None where it is no floating-point arithmetic."""
    for kind, pattern in _KINDS:
        match = re.fullmatch(pattern, mnemonic)
        if match:
            width = next((bits for name, bits in _WIDTHS if name in operands), 128)
            return kind, 1 if match["form"] == "s" else width // _BITS[match["type"]]
    return None


def check_decoder() -> None:
    """Raises Unavailable without capstone."""
    if importlib.util.find_spec("capstone") is None:
        raise Unavailable(
            "capstone is not installed, which decodes instructions: pip install -r requirements-instructions.txt"
        )


def arithmetic(executions: Mapping[Execution, int], code: Code) -> dict[str, int]:
    """Kind → lanes executed, and "unread": executions of addresses whose bytes are not known."""
    counts: Counter[str] = Counter()
    for execution, times in executions.items():
        kind, lanes = code.of(execution)
        if kind:
            counts[kind] += times * lanes
    return dict(counts)


class Code:
    """What stands at an address, in the files of objects and in generated code; each address is decoded once.

    generated: address → bytes of each mapping of code that has no file. Raises Unavailable without capstone.
    """

    def __init__(self, generated: Mapping[int, bytes]) -> None:
        check_decoder()
        import capstone

        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._generated = generated
        self._images: dict[str, _Image] = {}
        self._known: dict[Execution, tuple[str, int]] = {}

    def of(self, execution: Execution) -> tuple[str, int]:
        """(kind, lanes) of the instruction there: ("", 0) where it is no arithmetic, (UNREAD, 1) without bytes."""
        if execution not in self._known:
            name, address = execution
            text = next(self._decoder.disasm_lite(self._bytes_at(name, address), address, 1), None)
            self._known[execution] = (UNREAD, 1) if text is None else lanes_of(text[2], text[3]) or ("", 0)
        return self._known[execution]

    def _bytes_at(self, name: str, address: int) -> bytes:
        if name:
            if name not in self._images:
                self._images[name] = _Image(Path(name))
            return self._images[name].bytes_at(address)
        for start, code in self._generated.items():
            if start <= address < start + len(code):
                return code[address - start :][:LONGEST_INSTRUCTION]
        return b""


class _Image:
    """The code of a 64-bit ELF file by address, from its table of loadable segments (System V ABI, chapter 5)."""

    def __init__(self, path: Path) -> None:
        self._content: bytes | mmap.mmap = b""
        self.segments: tuple[tuple[int, int, int], ...] = ()
        if path.is_file() and path.stat().st_size:
            self.segments = tuple(_segments(path))
            with path.open("rb") as file:
                self._content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def bytes_at(self, address: int) -> bytes:
        """Up to the longest instruction's length from there; none where the file has no such address."""
        for start, size, offset in self.segments:
            if start <= address < start + size:
                at = offset + address - start
                return self._content[at : at + LONGEST_INSTRUCTION]
        return b""


def _segments(path: Path) -> Iterable[tuple[int, int, int]]:
    """(address, bytes, offset in the file) of each loadable segment."""
    with path.open("rb") as file:
        head = file.read(64)
        if head[:5] != b"\x7fELF\x02":
            return
        (table,) = struct.unpack_from("<Q", head, 32)
        entry_bytes, entries = struct.unpack_from("<HH", head, 54)
        file.seek(table)
        rows = file.read(entry_bytes * entries)
    for at in range(0, len(rows), entry_bytes):
        kind, _, offset, address, _, size = struct.unpack_from("<IIQQQQ", rows, at)
        if kind == 1:  # PT_LOAD
            yield address, size, offset
