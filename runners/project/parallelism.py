"""`python -m runners.project --parallel`: a transformer's training step over many devices, split every way that fits.

Memory, communication and a floor for the step's time of each way (`analysis/project/parallelism/step.py`), the fastest
first. Nothing is run.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.devices import PRECISIONS
from runners.cli import Mistake, Parser, add_format, choice_error, guarded, number
from runners.project import swept
from runners.project.machine import positive

if TYPE_CHECKING:
    from analysis.project.parallelism import Cluster, Transformer

EXAMPLES = """examples:
  python -m runners.project --parallel --parameters 70e9 --devices 64 --batch 512 --device "NVIDIA H100 80GB HBM3"
  python -m runners.project --parallel --layers 96 --width 12288 --heads 96 --devices 1024 --batch 1536 \\
      --device "NVIDIA A100-SXM4-80GB" --tensor 8 --pipeline 8
  python -m runners.project --parallel --run RUN --links DIR     # steps of a sweep on several ranks, beside measured
what is counted and what is not: docs/compute.md"""

FIXED = ("tensor", "pipeline", "zero", "micro", "recompute")


def parser() -> Parser:
    """The parser of this mode."""
    made = Parser(
        prog="python -m runners.project --parallel",
        description="How a transformer's training step is split over devices: memory, communication and time.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--parallel", action="store_true", help=argparse.SUPPRESS)
    model = made.add_argument_group("the model: its parameters, or its sizes")
    model.add_argument("--parameters", type=positive, metavar="N", help="about so many, 128 times as wide as deep")
    for name in ("layers", "width", "heads"):
        model.add_argument(f"--{name}", type=number(int, 1))
    model.add_argument("--sequence", type=number(int, 1), default=2048, help="(2048)")
    model.add_argument("--vocabulary", type=number(int, 1), default=50_304, help="(50304)")
    made.add_argument("--batch", type=number(int, 1), required=True, metavar="SEQUENCES", help="a step, of all devices")
    made.add_argument("--devices", type=number(int, 1, 10**6), required=True)
    _add_cluster(made)
    _add_plan(made)
    made.add_argument("--most", type=number(int, 1), default=8, help="rows of the table (8); CSV and JSON have all")
    made.add_argument("--out", type=Path, metavar="FILE", help="also write what is printed here")
    add_format(made)
    return made


def _add_cluster(made: Parser) -> None:
    group = made.add_argument_group("the devices")
    group.add_argument("--device", required=True, help="as its driver prints it, such as 'NVIDIA H200'")
    group.add_argument("--precision", choices=("amp-bf16", "amp-fp16"), default="amp-bf16", help="(amp-bf16)")
    group.add_argument("--memory", metavar="BYTES", help="of a device that may be filled (90 %% of the datasheet's)")
    group.add_argument("--node", type=number(int, 1), help="devices that share a node (8)")
    group.add_argument("--within", metavar="LINK", help="between devices of a node (NVLink or PCIe, by the device)")
    group.add_argument("--between", metavar="LINK", help="of each device to other nodes (InfiniBand, by the device)")
    group.add_argument("--link-ratio", type=number(float, 0.01, 1), help="of a link's rate in collectives (0.8)")
    group.add_argument("--reachable", type=number(float, 0.01, 1), help="of the peak in matrix products (0.8)")


def _add_plan(made: Parser) -> None:
    from analysis.project.parallelism import RECOMPUTE

    group = made.add_argument_group("only plans with")
    for name, words in (("tensor", "devices a matrix"), ("pipeline", "stages"), ("micro", "sequences at once")):
        group.add_argument(f"--{name}", type=number(int, 1), metavar="N", help=words)
    group.add_argument("--zero", type=int, choices=range(4), help="stage of sharding over replicas; 3 is FSDP")
    group.add_argument("--recompute", choices=RECOMPUTE, help="activations: none, the scores, all of a block")


def main(arguments: Sequence[str]) -> int:
    """The command."""
    if swept.is_asked(arguments):
        return swept.main(arguments)
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    from analysis.project.parallelism.plans import plans
    from reports.project import ParallelismAnswer
    from reports.project.parallelism import to_text
    from runners.cli import reserve, show_page

    if options.out is not None:
        reserve(options.out)
    model, cluster = _model(options), _cluster(options)
    fixed = {name: getattr(options, name) for name in FIXED if getattr(options, name) is not None}
    found = plans(model, options.devices, options.batch, cluster, fixed)
    if not found:
        raise Mistake(_nothing(options, model, cluster, fixed))
    answer = ParallelismAnswer(model, options.devices, options.batch, options.device, cluster, found)
    show_page(lambda width, colour: to_text(answer, options.format, options.most, width, colour), options.out)
    return 0


def _model(options: Namespace) -> Transformer:
    from analysis.project.parallelism import Transformer
    from runners.project.budget_transformer import shape

    sizes = [options.layers, options.width, options.heads]
    if options.parameters is not None and not any(sizes):
        return shape(options.parameters, options.sequence, options.vocabulary)
    if options.parameters is not None or None in sizes:
        raise Mistake("expected --parameters alone, or --layers, --width and --heads together")
    if options.width % options.heads:
        raise Mistake(f"--width: expected a multiple of {options.heads} heads, got {options.width}")
    return Transformer(options.layers, options.width, options.heads, options.sequence, options.vocabulary)


def _cluster(options: Namespace) -> Cluster:
    """The devices. Raises Mistake."""
    from dataclasses import replace

    from analysis.devices import between, peaks, within
    from analysis.project.parallelism import Cluster

    device = peaks.lookup(options.device)
    if device is None or device.bandwidth_bytes_per_s is None:
        near = ", ".join(peaks.nearest(options.device)) or "none"
        raise Mistake(f"--device: expected a name as its driver prints it, got {options.device!r}, nearest: {near}")
    unit = PRECISIONS[options.precision].matmul_unit
    if unit not in device.peaks:
        name = peaks.spelling(device, options.device)
        raise Mistake(f"--precision: {name} has no {unit} peak, got {options.precision}")
    made = Cluster(device.peaks[unit], device.bandwidth_bytes_per_s, _memory(options), within(device), between(device))
    given = {"node": options.node, "achieved": options.link_ratio, "reachable": options.reachable}
    given |= {side: _link(side, getattr(options, side)) for side in ("within", "between")}
    return replace(made, **{name: value for name, value in given.items() if value is not None})


def _memory(options: Namespace) -> float:
    from analysis.devices import memory as devices_memory
    from runners.project.budget_transformer import SPARE

    if options.memory is not None:
        try:
            return float(devices_memory.parse_bytes(options.memory))
        except ValueError as fault:
            raise Mistake(f"--memory: {fault}") from fault
    known = devices_memory.lookup(options.device)
    if known is None:
        raise Mistake(f"--memory: expected with {options.device}, whose memory is not known here")
    return SPARE * known.memory_bytes


def _link(side: str, name: str | None) -> Any:
    from analysis.devices import links

    if name is None:
        return None
    if name not in links():
        raise Mistake(f"--{side}: {choice_error('link', name, links())}")
    return links()[name]


def _nothing(options: Namespace, model: Transformer, cluster: Cluster, fixed: dict[str, Any]) -> str:
    """Why there is no plan: none divides, or none fits."""
    from dataclasses import replace

    from analysis.project.parallelism.plans import plans

    roomy = plans(model, options.devices, options.batch, replace(cluster, memory_bytes=float("inf")), fixed)
    if not roomy:
        return (
            f"expected devices, layers, heads and batch that divide, got {options.devices} devices, {model.layers} "
            f"layers, {model.heads} heads and a batch of {options.batch} with {fixed or 'any plan'}"
        )
    least = min(step.held.total for _, step in roomy)
    return (
        f"no plan fits: expected {least / 1e9:.1f} GB a device or more, got {cluster.memory_bytes / 1e9:.1f}; "
        "more devices, a smaller batch or --recompute full"
    )
