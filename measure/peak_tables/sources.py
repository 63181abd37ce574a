"""Which packages have a table of peaks of their own, where in their code it is, and how it is asked: a literal table.

`TABLES` are run; `ABSENT` were looked through and have none, each with whose they use. Versions are those of the
newest release that was looked through, and are not held here: the version that is asked is the one that is found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

BF16 = ("bf16",)
HALF = ("bf16", "fp16")
ALL = ("bf16", "fp16", "fp32", "tf32", "fp8", "int8")


@dataclass(frozen=True)
class PeakTable:
    """One package's table. distribution: its name in an index; a checkout's folder name where it is no package.

    file: in the distribution, or in the checkout. names: definitions of that file that are taken, all that the question
    needs. question: a name of QUESTIONS in `questions.py`. dtypes: what the package's own function tells apart.
    by_rate: it has rates per unit and clock, no figures of devices.
    """

    package: str
    distribution: str
    file: str
    names: tuple[str, ...]
    question: str
    dtypes: tuple[str, ...]
    note: str = ""
    by_rate: bool = False
    is_checkout: bool = False


TABLES: Mapping[str, PeakTable] = {
    each.package: each
    for each in (
        PeakTable(
            "Lightning Fabric",
            "lightning-fabric",
            "lightning_fabric/utilities/throughput.py",
            ("_CUDA_FLOPS", "_TPU_FLOPS", "get_available_flops"),
            "fabric",
            ("bf16", "fp16", "fp32", "tf32", "int8"),
            "also asked by litgpt",
        ),
        PeakTable(
            "composer",
            "composer",
            "composer/callbacks/speed_monitor.py",
            ("_HSERIES_SXM", "GPU_AVAILABLE_FLOPS", "get_gpu_flops_available"),
            "composer",
            ("bf16", "fp16", "fp32", "fp8"),
            "also asked by LLM Foundry; amp_* precisions for the 16- and 8-bit formats",
        ),
        PeakTable("torchtitan", "torchtitan", "torchtitan/tools/utils.py", ("get_peak_flops",), "torchtitan", BF16),
        PeakTable(
            "torch inductor",
            "torch",
            "torch/_inductor/analysis/device_info.py",
            (
                "DeviceInfo",
                "_device_mapping",
                "_DEVICE_NAME_VARIANT_SUFFIXES",
                "lookup_device_info",
                "datasheet_tops",
            ),
            "inductor",
            ALL,
        ),
        PeakTable(
            "torch GPULimits",
            "torch",
            "torch/cuda/_device_limits.py",
            ("GPULimits",),
            "gpu_limits",
            ("bf16", "fp16", "tf32", "int8"),
            "units × rate × highest clock of the device; asked with the row's own units and clock",
            by_rate=True,
        ),
        PeakTable(
            "triton.testing",
            "triton",
            "triton/testing.py",
            ("get_max_tensorcore_tflops",),
            "triton_testing",
            ("bf16", "fp16", "tf32", "fp8", "int8"),
            "units × rate × the caller's clock; asked with the row's own units and clock",
            by_rate=True,
        ),
        PeakTable("TRL", "trl", "trl/trainer/utils.py", ("_PEAK_FLOPS_BY_DEVICE", "get_peak_flops"), "trl", HALF),
        PeakTable("verl", "verl", "verl/utils/flops_counter.py", ("_DEVICE_FLOPS", "get_device_flops"), "verl", BF16),
        PeakTable("VeOmni", "veomni", "veomni/utils/count_flops.py", ("get_device_flops",), "veomni", BF16),
        PeakTable(
            "NeMo Automodel",
            "nemo-automodel",
            "nemo_automodel/_transformers/mfu.py",
            ("_DEVICE_FLOPS", "_UNIT_TO_SCALE", "get_device_flops"),
            "verl",
            BF16,
        ),
        PeakTable(
            "ms-swift",
            "ms-swift",
            "swift/callbacks/perf_log.py",
            ("device_flops_map", "PerfMetricsLogCallback"),
            "swift",
            BF16,
            "the table is kept and its function is not called: the callback times a product instead",
        ),
        PeakTable(
            "OLMo-core",
            "ai2-olmo-core",
            "olmo_core/train/callbacks/speed_monitor.py",
            ("get_device_peak_flops_per_second",),
            "olmo_core",
            HALF,
        ),
        PeakTable(
            "Levanter",
            "marin-fray",
            "fray/device_flops.py",
            (
                "DEVICE_FLOPS",
                "normalize_device_type",
                "jax_device_kind_to_fray_device_type",
                "normalize_dtype",
                "device_flops",
                "device_flops_for_jax_device",
            ),
            "fray",
            ALL,
            "the table is in marin-fray, which Levanter asks",
        ),
        PeakTable(
            "nanochat", "nanochat", "nanochat/common.py", ("get_peak_flops",), "torchtitan", BF16, is_checkout=True
        ),
        PeakTable(
            "nanoGPT",
            "nanoGPT",
            "model.py",
            (),
            "nanogpt",
            BF16,
            "one constant, whatever the device",
            is_checkout=True,
        ),
        PeakTable(
            "llm.c",
            "llm.c",
            "llmc/mfu.h",
            (),
            "llm_c",
            ("bf16", "fp16", "tf32"),
            "C: its table is read and its formula applied",
            is_checkout=True,
        ),
    )
}
"""Package → its table. Where a file has moved or a name has gone, the package is a row with that reason."""

ABSENT: Mapping[str, str] = {
    "litgpt": "no table of its own: it asks Lightning Fabric's",
    "LLM Foundry": "no table of its own: it asks composer's",
    "torchtune": "no table of peaks: it reports tokens per second",
    "axolotl": "no table of peaks: it reports tokens per second",
    "Megatron-Bridge": "no table of peaks: it reports TFLOP/s per GPU",
    "MaxText": "no table of peaks: it reports TFLOP/s per device",
    "zeus": "no table of peaks: it reports energy",
    "accelerate": "no table of peaks",
    "LLaMA-Factory": "no table of peaks in the package",
    "AReaL": "no table of peaks",
    "SkyRL": "no table of peaks",
}
"""Looked through, November 2026: package → why it has no rows."""
