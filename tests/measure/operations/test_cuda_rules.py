"""Known answer, law: CUDA's autocast and dropout over CPU tensors have its dtypes and bytes, and are undone."""

import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from measure.operations.control_flow import IN_FLOAT32, cuda_rules
from tests.measure.operations.cuda_casts import HALF, WHOLE, dtypes, saved_bytes

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"


def test_cuda_takes_these_to_float32() -> None:
    """The lower half is of no list: what came."""
    before = dtypes()
    with cuda_rules():
        inside = dtypes()
    kept = {"linear": HALF, "gelu": HALF, "add": HALF}
    assert inside == {name: WHOLE for name in before if name not in kept} | kept
    assert before == dtypes() == dict.fromkeys(before, HALF)


def test_every_name_is_on_cudas_list() -> None:
    """As the header that comes with torch has it; an operator that is on no list any more would be found here."""
    text = HEADER.read_text(encoding="utf-8")
    parts = re.findall(r"#define AT_FORALL_FP32(?:_SET_OPT_DTYPE)?\(_\)(.*?)\n\n", text, re.DOTALL)
    assert len(parts) == 2
    listed = {".".join(found.split(", ")) for part in parts for found in re.findall(r"_\(([\w, ]+)\)", part)}
    assert set(IN_FLOAT32) - listed <= {"rms_norm"}  # which torch 2.11 has not there yet


def test_a_weight_of_attention_keeps_nine_bytes_on_cuda() -> None:
    """Its softmax and what dropout left of it, 4 bytes each, and dropout's mask. A published table says so: six more
    heads of a GPT-2 of 12 layers and 2048 tokens take 9,869 − 7,151 = 2,718 MB (sail-sg/Adan, fused_adan/README.md)."""
    x = torch.randn(16, 32, requires_grad=True)
    with cuda_rules():
        assert saved_bytes(x) == 9 * x.numel()
    assert saved_bytes(x) > 9 * x.numel()
    assert round(9 * 2048**2 * 6 * 12 / 1e6) == 9869 - 7151


@pytest.mark.parametrize("p", [0.0, 0.4, 1.0])
def test_dropout_drops_as_it_did(p: float) -> None:
    x = torch.ones(1000, requires_grad=True)
    with cuda_rules():
        made = functional.dropout(x, p)
        assert torch.equal(functional.dropout(x, p, training=False), x)
    made.sum().backward()
    assert torch.equal(made, x.grad)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    assert all(value == pytest.approx(scale) for value in made.tolist() if value)
    assert float((made == 0).float().mean()) == pytest.approx(p, abs=0.1)


def test_float16_is_read_as_it_is() -> None:
    """CUDA's softmax reads float16 and writes float32, which a CPU's kernel refuses to do (fake tensors have none);
    bfloat16 it copies first."""
    x = torch.randn(4, 8)
    with cuda_rules():
        with torch.autocast("cpu", torch.float16), pytest.raises(RuntimeError, match="not supported on CPU"):
            x.half().softmax(-1)
        with torch.autocast("cpu", HALF):
            assert torch.equal(x.to(HALF).softmax(-1), x.to(HALF).float().softmax(-1))
