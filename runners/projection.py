"""Runs `python -m runners.project FILE`: predicts what training a model to a target error takes on a device.

FILE has the model's learning curve, its sizes and the target error. `project` takes the command's arguments, prints the
predicted data, parameters, FLOP, memory and time, and returns the exit code. It writes figures if `--figures` asks for
them. If a model's formulas are not shipped, `runners.formula` derives them from the model's operation tables, in fp32.
"""

from __future__ import annotations

import argparse
import contextlib
import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.devices.precisions import TENSOR_UNITS
from results.errors import Unavailable
from results.text_files import read_text, toml_tables
from runners.cli.arguments import choice_error, number
from runners.cli.exits import FAILED, Mistake, as_mistake, guarded
from runners.cli.model_options import Options, parser_of
from runners.cli.output import reserve, say, show_answer, show_transient, write_file

if TYPE_CHECKING:
    from analysis.project.accelerator import Accelerator, DeviceGroup
    from analysis.project.domain import Domain, Formulas
    from analysis.stats.intervals import Estimate, Uncertain
    from reports.project import Draws, ProjectionAnswer, ReachedUtilization


LEAST, MOST = 1e-9, 1e60
"""Limits of any amount in an option."""


def positive(text: str) -> float:
    """Parse a number above 0, within LEAST and MOST: 1e21 or 300."""
    value = float(number(float)(text))
    if not LEAST <= value <= MOST:  # `not` refuses nan
        raise argparse.ArgumentTypeError(f"expected a number above 0, from {LEAST:g} to {MOST:g}, got {text!r}")
    return value


def interval(text: str) -> tuple[float, float]:
    """Parse VALUE or LOW..HIGH, both finite and above 0."""
    low, dots, high = text.partition("..")
    try:
        ends = positive(low), positive(high if dots else low)
    except argparse.ArgumentTypeError as fault:
        raise argparse.ArgumentTypeError(f"expected VALUE or LOW..HIGH, both above 0, got {text!r}") from fault
    if ends[0] > ends[1]:
        raise argparse.ArgumentTypeError(f"expected LOW..HIGH with LOW first, got {text!r}")
    return ends


MODES = {
    "--reproduce": "a paper's tables and figures, compared with what follows from its inputs",
    "--compute": "training compute of GPU-hours and back, with an interval",
}
"""Option → the question that it chooses. Without one of them a model is projected from a file."""

UTILIZATION: Options = {
    "--utilization": {
        "type": interval,
        "metavar": "RATIO|LOW..HIGH",
        "help": "model FLOP ÷ (time × peak), a value or an interval",
    },
    "--confidence": {"type": number(float, 0.5, 0.999), "default": 0.95, "help": "confidence of every interval (0.95)"},
}


def utilization_of(options: Namespace, unit: str) -> Uncertain:
    """Return the utilization in the options. It may exceed 1 only on IEEE units, where fast algorithms save products.

    Raises Mistake.
    """
    from analysis.stats.intervals import between

    low, high = options.utilization
    is_fraction = unit in TENSOR_UNITS
    if is_fraction and (high > 1 or low < high == 1):
        given = f"{high:g}" if low == high else f"{low:g}..{high:g}"
        raise Mistake(f"--utilization: expected less than 1 on {unit} units, got {given}")
    return between(low, high, options.confidence, "logit" if is_fraction else "log")


def _drawn(
    options: Namespace, domain: Domain, target: Accelerator, formulas: Formulas
) -> tuple[Draws, Mapping[str, Estimate]] | None:
    """Return the answers by random draws, None if nothing asks for them. Raises Mistake or ValueError."""
    from analysis.project import frontier
    from analysis.project.accelerator import all_reduce_s
    from analysis.stats.intervals import Uncertain, answers
    from reports.project import Draws

    reached, group = _utilization(options, target), _group(options)
    if reached is None and group is None:
        return None
    inputs = {**frontier.domain_inputs(domain), **({"utilization": reached.utilization} if reached else {})}

    def reduce_s(parameters: float) -> float:
        return all_reduce_s(parameters * target.element_bytes, group) if group else 0.0

    function = frontier.drawn(domain, formulas, target, options.devices, reduce_s)
    estimates = answers(function, inputs, options.confidence)
    if estimates["steps"].value < 1:
        batch = options.devices * domain.sub_batch
        raise Mistake(
            f"--devices: expected a batch of at most all data, got {batch:,} of {estimates['data'].value:,.0f}"
        )
    link = group.slowest().name if group else ""
    if group and group.nodes > 1 and group.per_node > 1:
        link = f"{group.within.name} in nodes of {group.per_node} and {group.between.name} between them"
    draws = Draws(
        inputs=[name for name, quantity in inputs.items() if not isinstance(quantity, Uncertain) or quantity.spread],
        confidence=options.confidence,
        reached=reached,
        devices=options.devices,
        link=f"{link} at {group.achieved:g} of the rate" if group else "",
    )
    return draws, estimates


def _utilization(options: Namespace, target: Accelerator) -> ReachedUtilization | None:
    """Return the utilization in the options, None if the roofline decides. Raises Mistake."""
    if options.utilization is None:
        return None
    for name, ratio in (("--compute-ratio", options.compute_ratio), ("--memory-ratio", options.memory_ratio)):
        if ratio is not None:
            raise Mistake(f"{name}: expected without --utilization, which takes its place")
    from reports.project import ReachedUtilization

    return ReachedUtilization(
        target.name,
        options.dtype,
        options.dtype,
        target.peak_flop_per_s,
        target.source,
        utilization_of(options, options.dtype),
    )


def _group(options: Namespace) -> DeviceGroup | None:
    """Return the devices and their links, None for one device. Raises Mistake."""
    from analysis.devices import peaks
    from analysis.devices.memory import ACHIEVED, NODE_DEVICES, between, within
    from analysis.project.accelerator import DeviceGroup

    if options.devices == 1:
        if options.node is not None:
            raise Mistake("--node: expected --devices of 2 or more with it")
        return None
    node = min(options.node or NODE_DEVICES, options.devices)
    if options.devices % node:
        raise Mistake(f"--devices: expected a multiple of {node}, the devices of a --node, got {options.devices}")
    if not options.device:
        raise Mistake("--devices: expected --device with it, whose links are known")
    device = peaks.device_called(options.device)
    return DeviceGroup(options.devices, node, within(device), between(device), ACHIEVED)


UNITS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")

TERA, GIGA, GIBI = 1e12, 1e9, 2**30

EPILOG = (
    "FILE is one of the domains that come with the project, or a TOML file of ten lines: docs/projections.md. Other "
    "questions, each with a --help of its own: "
)


OPTIONS: Mapping[str, Options] = {
    "": {
        "file": {"nargs": "?", "metavar": "FILE", "help": "word_lm, char_lm, nmt, speech, image, or a .toml file"},
        "--target": {"type": number(float), "metavar": "ERROR", "help": "the error to reach, instead of the file's"},
        "--sub-batch": {"type": number(int, 1), "metavar": "N", "help": "samples per step, instead of the file's"},
        "rules": {"help": "counting rules (catamount for its models, else flopledger)"},
        "format": {},
        "--figures": {"type": Path, "metavar": "DIR", "help": "draw the figures in this folder, too"},
        "--allow-code": {"action": "store_true", "help": "allow FILE to name a function as its model, and run it"},
    },
    "the target accelerator (that of the paper)": {
        "device": {
            "default": "",
            "metavar": "NAME",
            "help": "a row of the table of peaks, as in 'NVIDIA H100 80GB HBM3'",
        },
        "--dtype": {
            "choices": UNITS,
            "default": "fp32",
            "help": "format of the arithmetic and of all numbers in memory (fp32)",
        },
        "peak-tflops": {"help": "peak of your own accelerator, 10^12 FLOP/s"},
        "--bandwidth-gbs": {"type": positive, "metavar": "N", "help": "bandwidth of its memory, 10^9 B/s"},
        "--memory-gib": {
            "type": positive,
            "metavar": "N",
            "help": "memory of one accelerator; a sub-batch that it does not hold is refused",
        },
        "--compute-ratio": {"type": number(float, 0, 1), "metavar": "R", "help": "share of the peak achieved (0.8)"},
        "--memory-ratio": {"type": number(float, 0, 1), "metavar": "R", "help": "share of the bandwidth (0.7)"},
    },
    "a utilization, instead of both shares": UTILIZATION,
    "data parallelism: devices with a sub-batch each": {
        "--devices": {"type": number(int, 1, 10**6), "default": 1, "help": "number of devices (1)"},
        "--node": {"type": number(int, 1), "help": "number of devices that share a node (8)"},
    },
}

DESCRIPTION = "What will training at the accuracy frontier take, and on which machine?"


def project(arguments: Sequence[str]) -> int:
    """Run the command. 0: printed; 1: the model has no formulas; 2: the caller's mistake; 3: a file was not
    written."""
    modes = "; ".join(f"{option} ({question})" for option, question in MODES.items())
    options = parser_of("project", DESCRIPTION, OPTIONS, EPILOG + modes).parse_args(arguments)
    return guarded(lambda: _run(options))


def _run(options: Namespace) -> int:
    from reports import project as project_text

    if options.figures:
        reserve(options.figures / "figure")
    with as_mistake(ValueError):
        domain, target = _domain(options), target_of(options)
    try:
        formulas = _formulas(domain, options.rules)
    except Unavailable as fault:
        show_transient("")
        say(f"error: {fault}")
        return FAILED
    show_transient("")
    with as_mistake(ValueError):
        projection = _answer(options, domain, target, formulas)
    if options.figures:
        from reports.project_paper import of_domain

        for name, content in of_domain(domain, formulas, target).items():
            write_file(options.figures / name, content)
    show_answer(
        options.format,
        lambda width, colour: project_text.to_text(projection, width, colour),
        lambda: project_text.document(projection),
        lambda: project_text.to_csv(projection),
    )
    return 0


def _answer(options: Namespace, domain: Domain, target: Accelerator, formulas: Formulas) -> ProjectionAnswer:
    """Return the whole projection. Raises Mistake or ValueError for invalid options, and for a sub-batch that does not
    fit into the given memory."""
    from analysis.project import frontier
    from reports.project import ProjectionAnswer

    middle, estimates = frontier.spread(domain, formulas, target)
    grown, needed = middle["grown"], middle["footprint_bytes"]
    largest = accelerators = None
    if target.memory_bytes:
        largest = frontier.largest_batch(domain, formulas, target, grown)
        accelerators = math.ceil(needed / target.memory_bytes)
    if options.memory_gib is not None and largest is not None and largest < domain.sub_batch:
        holds = f"up to {largest:,}" if largest else "none, as not even one sample fits"
        raise ValueError(
            f"expected a sub-batch that {target.memory_bytes or 0:,.0f} bytes hold ({holds}), "
            f"got {domain.sub_batch:,}, which takes {needed:,.0f}"
        )
    draws, numbers = _drawn(options, domain, target, formulas) or (None, estimates)
    return ProjectionAnswer(
        domain=domain,
        target=target,
        rules=formulas.rules,
        middle=middle,
        estimates=numbers,
        fit=frontier.fit_sweep(domain, formulas, target, grown),
        limits=frontier.asymptote(domain, formulas, target.element_bytes),
        sub_batches=frontier.batches(domain, formulas, target, grown),
        largest_batch=largest,
        accelerators=accelerators,
        notes=tuple(_notes(target, formulas, draws.reached if draws else None)),
        draws=draws,
        partial_bytes=bool(formulas.at_least & {"bytes_accessed", "kept_bytes"}),
    )


def target_of(options: Namespace) -> Accelerator:
    """Return the accelerator of the options. Raises ValueError for an invalid one."""
    from analysis.project import accelerator, ppopp2019

    target = ppopp2019.target_of(ppopp2019.inputs())
    if options.device:
        target = accelerator.of_device(options.device, options.dtype, target)
    elif options.peak_tflops is None and options.dtype != "fp32":
        raise ValueError(f"--dtype {options.dtype}: expected --device or --peak-tflops beside it, got neither")
    if (options.peak_tflops is None) != (options.bandwidth_gbs is None) and not options.device:
        raise ValueError("expected both --peak-tflops and --bandwidth-gbs for an accelerator of your own, got one")
    changes = {
        "peak_flop_per_s": options.peak_tflops and options.peak_tflops * TERA,
        "bandwidth_bytes_per_s": options.bandwidth_gbs and options.bandwidth_gbs * GIGA,
        "memory_bytes": options.memory_gib and options.memory_gib * GIBI,
        "compute_ratio": options.compute_ratio,
        "memory_ratio": options.memory_ratio,
    }
    if options.peak_tflops is not None and not options.device:
        target = replace(target, name="your accelerator", memory_bytes=None, source="the command line")
        target = replace(target, element_bytes=accelerator.ELEMENT_BYTES[options.dtype])
    return replace(target, **{name: value for name, value in changes.items() if value is not None})


def _domain(options: Namespace) -> Domain:
    """Return the file's domain, changed by the options. Raises ValueError or Mistake."""
    from analysis.project import domain as domains
    from workloads.catalogue.model_names import CODE, parse

    names, file = domains.ORDER, options.file
    if file is None:
        raise Mistake(f"expected a domain ({', '.join(names)}) or a .toml file, got none")
    path = domains.FOLDER / f"{file}.toml" if file in names else Path(file)
    if not path.suffix and not path.exists():
        raise Mistake(f"{choice_error('domain', file, names)}, or a .toml file")
    try:
        tables = toml_tables(read_text(path))
    except OSError as fault:
        raise Mistake(f"{path} could not be read: {fault.strerror or fault}") from fault
    except ValueError as fault:
        raise Mistake(f"{path}: expected TOML, got {fault}") from fault
    if options.target is not None:
        error = tables["error"] if isinstance(tables.get("error"), dict) else {}
        tables = {**tables, "error": {**error, "target": options.target}}
    if options.sub_batch is not None:
        tables = {**tables, "sub_batch": options.sub_batch}
    with as_mistake(ValueError, about=f"{path.name}: "):
        domain = domains.from_tables(tables, path.stem)
    is_code = False
    with contextlib.suppress(ValueError):  # what is not a name of a model is refused where it is built
        is_code = parse(domain.model).form in CODE
    if is_code and not options.allow_code:
        raise Mistake(f"{path.name} names code, which would run as you: {domain.model}; read it, then add --allow-code")
    return domain


def _formulas(domain: Domain, rules: str | None) -> Formulas:
    """Return the shipped formulas, else the model's own, in the size that grows, the sizes that follow it and the
    batch. rules: None: Catamount's if these are shipped, else ours.

    Raises Unavailable where the model has none, Mistake for an unknown model or size.
    """
    from analysis.project.domain import BATCH, Formulas, shipped_formulas
    from runners.formula import formula_answer
    from runners.formula_points import ALIASES

    known = shipped_formulas(rules or "catamount").get(domain.model)
    if known is not None and not set(domain.sizes) - set(known.sizes):
        return known
    follow = [name for name, size in domain.sizes.items() if isinstance(size, str)]
    sizes = {name: size for name, size in domain.sizes.items() if isinstance(size, int)}
    hyper = {ALIASES.get(name, name): size for name, size in sizes.items()}
    try:
        result = formula_answer(domain.model, (domain.grows, *follow, BATCH), hyper, rules=rules or "flopledger")
    except Mistake as fault:
        raise Mistake(str(fault).removeprefix("--symbols: ")) from fault
    if result.not_understood:
        names = ", ".join(result.not_understood)
        raise Unavailable(f"{domain.model}: no rule counts {names}: a part of its FLOP is no projection")
    whole = {name: formula for name, formula in result.totals.items() if formula is not None}
    quantities = {**result.at_least, **whole}
    products_only = "all_flop" not in quantities
    quantities.setdefault("all_flop", quantities.get("model_flop"))
    at_least = frozenset(result.at_least.keys() - whole.keys())
    sizes |= {name: size for name, size in result.point.items() if name != BATCH}
    return Formulas(domain.model, result.rules, sizes, quantities, 4, products_only, at_least)


def _notes(target: Accelerator, formulas: Formulas, measured: object) -> list[str]:
    notes = []
    if formulas.rules == "catamount":
        notes.append("FLOP and bytes are by Catamount's rules, as the paper's: those of PyTorch by --rules flopledger.")
    notes.append(
        "The footprint is what is kept for the backward pass and a gradient of each parameter; bytes are of every "
        "operation alone, nothing fused."
    )
    if formulas.products_only:
        notes.append("FLOP are those of products alone: the other arithmetic has no formula, and the step takes more.")
    if formulas.at_least & {"bytes_accessed", "kept_bytes"}:
        notes.append(
            "What oneDNN's LSTM keeps for its backward pass has no known size: bytes, footprint, accelerators, lambda, "
            "mu and delta are at least so much, FLOP per byte, utilization and the largest sub-batch at most."
        )
    if target.element_bytes != formulas.element_bytes:
        notes.append(f"Every number is taken to have {target.element_bytes} bytes in memory.")
    if not measured:
        notes.append(f"The achieved shares are assumptions. Peak and bandwidth: {target.source}.")
    return notes
