"""Known answer: a predicted footprint against a CUDA device's own allocator; needs a GPU with 4 GB."""

import pytest
import torch

from measure.operations.control_flow import cuda_rules
from runners.workers.traced_step import StepOptions, check
from tests.measure.operations.cuda_casts import dtypes, saved_bytes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.mark.parametrize("precision", ["fp32", "amp-bf16"])
@pytest.mark.parametrize(("model", "batch"), [("resnet18", 16), ("vgg11", 8), ("mobilenet_v2", 16)])
def test_tensors_within_one_percent(model: str, batch: int, precision: str) -> None:
    predicted, seen = check(StepOptions(model, precision, "sgd", "cuda"), batch, "cuda")
    assert predicted == pytest.approx(seen, rel=0.01)


def test_cudas_autocast_and_dropout_are_those_that_a_trace_follows() -> None:
    """The dtypes of the context on a CPU, and nine bytes for a weight of attention."""
    with cuda_rules():
        followed = dtypes()
    assert dtypes("cuda") == followed
    x = torch.randn(16, 32, device="cuda", requires_grad=True)
    assert saved_bytes(x) == 9 * x.numel()


def test_a_batch_that_fits_runs_and_the_margin_holds() -> None:
    """On a share of the device that is set aside: the batch that fits with a margin of 0.1 runs, 1.3 times as many as
    by live bytes at most do not."""
    from runners.workers.traced_step import fit, parts, trace_batch

    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    share = min(free, 4 * 10**9)
    held = torch.cuda.memory_reserved()  # what tests before left in this process is no part of the share
    torch.cuda.set_per_process_memory_fraction((share + held) / total)
    try:
        asked = StepOptions("resnet18", "fp32", "sgd", "cuda")
        found = fit(lambda batch: trace_batch(asked, batch), share, 0.1, "cuda", torch.cuda.get_device_name())
        parts(asked, found.fits, None, "cuda").step(lambda phase: None)
        with pytest.raises(torch.OutOfMemoryError):
            parts(asked, int(1.3 * found.largest_batch), None, "cuda").step(lambda phase: None)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()
