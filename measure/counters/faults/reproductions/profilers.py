"""Faults that DeepSpeed's flops profiler and calflops, its copy, have both, with the same numbers."""

from __future__ import annotations

from measure.counters.faults.catalogue.fault import Fault, put_to
from measure.counters.faults.reproductions import patching
from measure.counters.faults.reproductions import shared as several


def faults(count: patching.Count) -> tuple[Fault, ...]:
    """What both profilers have, with the same numbers."""
    missing, patch = ("missing operation", "not seen"), ("side effect", "left behind")
    wrong, called = ("wrong count", "formula"), ("crash", "calling form")
    return (
        Fault(put_to(patching.addition_operator, count), "inconsistency", "not seen", [0, 0, 0, 32, 32], [32] * 5),
        Fault(put_to(patching.activations, count), "inconsistency", "no formula", [10, 0, 0, 0, 0, 0], [10] * 6),
        Fault(put_to(patching.bias_of_a_linear_layer, count), "inconsistency", "formula", [0, 16], [10, 16]),
        Fault(put_to(patching.recurrent_layers, count), "inconsistency", "formula", [0, 0, 0], [7_680, 5_760, 1_536]),
        Fault(put_to(patching.einsum, count), "inconsistency", "formula", [1_025, 0], [1_024, 512]),
        Fault(put_to(patching.relu_by_three_names, count), "inconsistency", "not seen", [10, 0, 0], [10, 10, 10]),
        Fault(put_to(patching.matrix_vector, count), *missing, [0, 0], [32, 16]),
        Fault(put_to(patching.bilinear, count), *missing, [0, 0], [2 * 5_760, 5_760]),
        Fault(put_to(patching.distances, count), *missing, [0, 0], [2 * 80_000, 80_000]),
        Fault(put_to(patching.function_imported_before, count), *missing, [0, 0], [200, 100]),
        Fault(put_to(patching.fused_attention, count), missing[0], "fused path", [0, 0], [2 * 278_528, 278_528]),
        Fault(put_to(patching.matmul_vector, count), *wrong, [2 * 32 * 2_048, 32 * 2_048], [2 * 2_048, 2_048]),
        Fault(put_to(patching.matmul_broadcast, count), *wrong, [210, 105], [840, 420]),
        Fault(put_to(patching.padding_same_of_an_even_kernel, count), *wrong, [18_816, 9_408], [2 * 12_288, 12_288]),
        Fault(put_to(patching.pooling_by_keywords, count), *called, "raises TypeError", 128),
        Fault(put_to(several.unbatched_convolution, count), *called, "raises AssertionError", [2 * 7_776, 7_776]),
        Fault(put_to(several.scripted, count), "crash", "tracing", "raises RuntimeError", [512, 256]),
        Fault(put_to(patching.exception_leaves_torch_patched, count), *patch, [True, 400], [False, 200]),
        Fault(put_to(several.left_in_evaluation, count), *patch, True, False),
    )
