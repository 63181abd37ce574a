"""Definition: shapes that are tried for a ceiling, by hand, and copies beyond the cache first."""

from analysis.devices.precisions import PRECISIONS
from measure.ceiling.trials import Trial, moves, sweep, titled
from results.records.cell import Ceiling


def test_families_by_hand():
    # 10 ms at 200 GFLOP/s: a side of 1024
    products = [t for t in sweep("cpu", 200e9) if t.operation == "matmul"]
    of = {
        family: [(t.batch, *t.sizes) for t in products if t.family == family]
        for family in ("square", "near", "area", "deep", "batch")
    }
    assert sorted(n for _, n, *_ in of["square"]) == [128, 256, 512, 1024, 2048]
    assert sorted(n for _, n, *_ in of["near"]) == [768, 1016, 1023, 1025, 1032, 1536]
    assert of["deep"] == [(1, 512, 512, 4096)]
    assert set(of["batch"]) == {(8, 512, 512, 512), (64, 256, 256, 256), (512, 128, 128, 128)}
    assert (1, 4096, 512, 512) in of["area"]  # tall
    assert (1, 512, 4096, 512) in of["area"]  # flat
    equal = [t.flop for t in products if t.family in ("area", "deep", "batch")]
    assert set(equal) == {2 * 1024**3}


def test_copies_in_memory_are_beyond_the_cache_and_come_first():
    # 32 MiB of cache: from 128 MiB on no cache helps; the CPU's largest operand is 256 MiB
    found = moves("cpu", 32 << 20, 64 << 30)
    sizes = {family: [m.operand_bytes >> 20 for m in found if m.family == family] for family in ("memory", "cache")}
    assert sizes == {"memory": [128, 128, 256, 256], "cache": [1, 1, 4, 4, 16, 16, 64, 64]}
    assert [m.family for m in found] == ["memory"] * 4 + ["cache"] * 8
    assert [m.operation for m in found] == ["copy", "triad"] * 6


def test_rows_have_the_unit_of_their_precision():
    blank = Ceiling(session="", device="cuda", precision="amp-bf16", unit="", operation="", shape="")
    found = titled(blank, Trial("convolution", (1, 2, 3), "channels_last", "grad_input"), PRECISIONS["amp-bf16"])
    assert (found.unit, found.operation, found.layout) == ("bf16", "convolution", "channels_last")
    assert found.shape == "grad_input of 1x2x3x3, 2 3x3 kernels"
    assert titled(blank, Trial("matmul", (1, 2, 3), family="deep"), PRECISIONS["tf32"]).unit == "tf32"
