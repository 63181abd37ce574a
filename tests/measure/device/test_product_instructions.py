"""What libraries print of their products: lines as oneDNN and MKL write them, and this machine's own."""

from __future__ import annotations

import os

import pytest
import torch

from measure.device import product_instructions
from measure.device.product_instructions import EMULATED, REFERENCE, UNKNOWN, instructions, log, of_implementation

CONVOLUTION = (
    "onednn_verbose,v1,primitive,exec,cpu,convolution,{},forward_training,src:{}:a:blocked:acdb::f0 "
    "wei:{}:a:blocked:Acdb64a::f0 bia:f32:a:blocked:a::f0 dst:f32:a:blocked:acdb::f0,attr-scratchpad:user,"
    "alg:convolution_direct,mb4_ic64oc64_ih28oh28kh3sh1dh0ph1_iw28ow28kw3sw1dw0pw1,18.7"
)
MKL = "MKL_VERBOSE oneMKL 2024.0 Product build 20240605 for Intel(R) 64 architecture {} enabled processors, Lnx 2.60GHz"
SGEMM = "MKL_VERBOSE SGEMM(T,N,256,64,256,0x7ffd,0x55f5,256,0x55f5,256,0x7ffd,0x55f5,256) 14.83ms CNR:OFF Dyn:1 NThr:2"


@pytest.mark.parametrize(
    ("implementation", "dtype", "found"),
    [
        ("brg_conv_fwd:avx10_1_512_amx", "bf16", "amx_bf16"),
        ("brgconv:avx512_core_amx", "s8", "amx_int8"),
        ("brgemm_matmul:avx10_1_512_amx_fp16", "f16", "amx_fp16"),
        ("brg_conv_fwd:avx10_1_512", "f16", "avx512_fp16"),
        ("jit:avx512_core_bf16", "bf16", "avx512_bf16"),
        ("jit:avx512_core", "f32", "avx512f"),
        ("jit:avx512_core", "bf16", EMULATED),
        ("jit:avx2", "f32", "fma"),
        ("brgconv:avx2_vnni", "u8", "avx_vnni"),
        ("jit:sse41", "f32", "sse2"),
        ("jit:sve_256", "f32", "sve"),
        ("ref:any", "f16", REFERENCE),
        ("gemm:jit", "f32", UNKNOWN),
    ],
)
def test_an_implementation_and_a_dtype_name_instructions(implementation: str, dtype: str, found: str) -> None:
    assert of_implementation(implementation, dtype) == found


def test_lines_of_both_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product_instructions, "_mkl_instructions", [])
    lines = [
        "onednn_verbose,v1,info,cpu,isa:Intel AVX10.1 and Intel AMX with bfloat16 and 8-bit integer support",
        "onednn_verbose,v1,primitive,exec,cpu,reorder,jit:uni,undef,src:bf16::blocked:abcd::f0 dst:f32::a,,,4,1",
        CONVOLUTION.format("brg_conv_fwd:avx10_1_512_amx", "bf16", "bf16"),
        CONVOLUTION.format("jit:avx512_core", "f32", "f32"),
        CONVOLUTION.format("ref:any", "f32", "f32"),
        SGEMM,
    ]
    assert instructions(lines) == {
        "convolution/bfloat16": ("amx_bf16",),
        "convolution/float32": ("avx512f", "reference"),
        "matmul/float32": ("unknown",),
    }
    told = MKL.format("Intel(R) Advanced Vector Extensions 512 (Intel(R) AVX-512)")
    assert instructions([told, SGEMM]) == {"matmul/float32": ("avx512f",)}
    assert instructions([SGEMM]) == {"matmul/float32": ("avx512f",)}  # MKL says it once in a process


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch without oneDNN")
def test_a_real_convolution_is_heard_and_other_output_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    layer, images = torch.nn.Conv2d(16, 16, 3), torch.randn(2, 16, 12, 12)
    with log() as said:
        layer(images)
        print("by Python", flush=True)
        os.write(1, b"by the system\n")
    assert said.instructions.keys() == {"convolution/float32"}
    assert capfd.readouterr().out == "by Python\nby the system\n"
    with log() as silent:
        pass
    assert silent.instructions == {}
