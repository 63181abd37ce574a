"""Instructions are decoded into lanes, and executed multiply-adds are those of the definition."""

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from measure.instructions import OPERATORS, Code, arithmetic, count_instructions, executions, lanes_of
from measure.instructions.operators import CountedCalls


@pytest.mark.parametrize(
    ("mnemonic", "operands", "expected"),
    [
        ("vfmadd231ps", "ymm0, ymm1, ymm2", ("fma", 8)),  # 256 bits of 32
        ("vfnmadd213pd", "ymm0, ymm1, ymmword ptr [rax]", ("fma", 4)),  # 256 of 64
        ("vfmadd132ss", "xmm0, xmm1, xmm2", ("fma", 1)),
        ("vmulps", "xmm0, xmm1, xmm2", ("mul", 4)),
        ("addsd", "xmm0, xmm1", ("add", 1)),
        ("vsubps", "ymm0, ymm1, ymm2", ("add", 8)),
        ("vrsqrtps", "ymm0, ymm1", ("reciprocal", 8)),
        ("vsqrtpd", "ymm0, ymm1", ("sqrt", 4)),
        ("vcmpltps", "ymm0, ymm1, ymm2", ("compare", 8)),
        ("vpaddd", "ymm0, ymm1, ymm2", None),
        ("vmovaps", "ymm0, ymm1", None),
        ("vcvtps2pd", "ymm0, xmm1", None),
    ],
)
def test_an_instruction_has_the_lanes_of_its_registers(mnemonic: str, operands: str, expected: object) -> None:
    assert lanes_of(mnemonic, operands) == expected


def test_what_a_callee_costs_is_not_executed_twice() -> None:
    dump = ["ob=/lib/a.so", "fn=f", "0x10 0 5", "cob=/lib/b.so", "cfn=g", "calls=2 0x20 0", "0x14 0 900", "0x18 0 7"]
    dump += ["ob=/usr/lib/libpython3.11.so.1.0", "fn=h", "0x30 0 8", "ob=???", "fn=i", "0x40 0 3"]
    dump += ["ob=/usr/lib/libstdc++.so.6.0.30", "fn=std::__detail::_Prime_rehash_policy::_M_next_bkt", "0x50 0 4"]
    assert executions(dump) == {("/lib/a.so", 0x10): 5, ("/lib/a.so", 0x18): 7, ("", 0x40): 3}


def test_bytes_come_from_a_file_by_its_segments_and_from_generated_code(tmp_path: Path) -> None:
    """0xC5 F4 59 C2 is vmulps ymm0, ymm1, ymm2, and 0xC4 E2 75 B8 C2 vfmadd231ps of the same (Intel's manual)."""
    pytest.importorskip("capstone", reason="capstone is not installed")
    head = b"\x7fELF\x02".ljust(32, b"\0") + struct.pack("<Q", 64) + bytes(14) + struct.pack("<HH", 56, 1)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 120, 0x5000, 0, 4, 4, 0)
    file = tmp_path / "a.so"
    file.write_bytes(head.ljust(64, b"\0") + segment + bytes.fromhex("c5f459c2"))
    counts = {(str(file), 0x5000): 3, ("", 0x100): 2, ("", 0x900): 4}
    code = Code({0x100: bytes.fromhex("c4e275b8c2")})
    assert arithmetic(counts, code) == {"mul": 24, "fma": 16, "unread": 4}


def test_of_calls_alike_the_first_is_counted() -> None:
    """Two sums of equal tensors are alike, one of other sizes is not, nor one of other strides or another factor."""
    written: list[bytes] = []
    square, wide = torch.ones(4, 4), torch.ones(4, 8)
    asked = (square, square, wide, square.T)
    with CountedCalls(SimpleNamespace(forget=lambda: None, write_counts=written.append)) as counted:
        for each in asked:
            torch.add(each, each)
        torch.add(square, square, alpha=2)
        torch.add(square, square)
    assert counted.calls == [("aten.add", first) for first in (0, 0, 2, 3, 4, 0)]
    assert written == [b"0", b"2", b"3", b"4"]


def test_there_are_a_hundred_operators() -> None:
    assert len(OPERATORS) >= 100


@pytest.mark.slow
def test_executed_multiply_adds_are_those_of_the_definition() -> None:
    pytest.importorskip("capstone", reason="capstone is not installed")
    found = count_instructions(["mm_16x16x16", "linear", "conv2d_3x3", "conv2d_depthwise", "mul_1001"])
    assert found["mm_16x16x16"]["fma"] == 16 * 16 * 16
    assert found["linear"]["fma"] == 16 * 32 * 32
    assert found["conv2d_3x3"]["fma"] == 2 * 16 * 6 * 6 * 16 * 9  # outputs × taps
    assert found["conv2d_depthwise"]["fma"] == 2 * 16 * 6 * 6 * 9
    assert found["mul_1001"]["mul"] == 1001
    assert all(counts["unread"] < counts["instructions"] / 100 for counts in found.values())
