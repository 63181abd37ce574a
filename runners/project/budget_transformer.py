"""A budget spent on a transformer, or a loss that one is to reach: parameters, tokens, loss, batch and devices."""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.project.compute import scaling_laws
from analysis.project.frontier import running_costs
from analysis.project.parallelism import Transformer
from analysis.stats import Input, Uncertain, answers, medians, tornado
from reports.project import BudgetAnswer, DevicePlan, ReachedUtilization, quantity
from runners.cli import Mistake, choice_error
from runners.project.output import budget_flop, intervals_of, request_json

if TYPE_CHECKING:
    from analysis.project.parallelism import Cluster

HEAD = 128
ASPECT = 128
"""Width of a head, and width ÷ layers: GPT-3's 175 billion have 96 heads of 128 and 12288/96."""

MOST_DEVICES = 4096
"""Up to which a number of devices that fits is looked for."""

MOST_NATS = 700.0
"""Beyond which a perplexity is not a number any more."""

MOST_OVER = 1.3
"""Of the parameters asked for, that a shape may have."""

SPARE = 0.9
"""Of a device's memory that a plan may fill: the rest is for the framework and fragments."""


def transformer_answer(options: Namespace, reached: ReachedUtilization, given: Mapping[str, Uncertain]) -> BudgetAnswer:
    """All answers. Raises Mistake."""
    law = _law(options)
    inputs: dict[str, Input] = {"utilization": reached.utilization, **given}
    if (block := law.block()) is not None:
        inputs["law"] = block
    function = _function(options, law, reached.peak_flop_per_s)
    try:
        _check(options, function, inputs)
        found = answers(function, inputs, options.confidence)
    except scaling_laws.Unreachable as fault:
        raise Mistake(f"--reach: {law.name}: {fault}, got {options.reach:g}") from fault
    moved = [name for name in ("loss", "parameters", "tokens", "gpu_hours", "cost", "co2_kg") if name in found]
    return BudgetAnswer(
        title=_title(options, reached),
        asked=request_json(options),
        domain="transformer",
        law=law.name,
        answers=found,
        swings={name: tornado(function, inputs, name, options.confidence) for name in moved},
        contrast=_contrast(options, law, found["flop"].value),
        fit=_fit(options, found["parameters"].value, found["critical_batch_tokens"].value),
        notes=_notes(options, law, found["flop"].value, found["parameters"].value),
        reached=reached,
        confidence=options.confidence,
        given=intervals_of(given, options.confidence),
        units={},
    )


def _check(
    options: Namespace, function: Callable[[Mapping[str, Any]], dict[str, Any]], inputs: Mapping[str, Input]
) -> None:
    """Raises Mistake for what is so little that guessing does better than the law."""
    centre = function({name: np.asarray([value]) for name, value in medians(inputs).items()})
    guess, loss = math.log(options.vocabulary), float(centre["loss"][0])
    if loss > guess and options.vocabulary > 1:
        raise Mistake(
            f"expected a budget that the law is for: it gives {loss:.3g} nats, and guessing among {options.vocabulary} "
            f"tokens is {guess:.3g}"
        )


def _law(options: Namespace) -> scaling_laws.Law:
    name = options.law or scaling_laws.DEFAULT
    if name not in scaling_laws.LAWS:
        raise Mistake(f"--law: {choice_error('law', name, scaling_laws.LAWS)}")
    return scaling_laws.LAWS[name]


def _function(options: Namespace, law: scaling_laws.Law, peak: float) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """What the answers are of draws of the inputs."""

    def of(draws: Mapping[str, Any]) -> dict[str, Any]:
        from analysis.project.compute import gpu_hours_of

        constants = {name: draws.get(name, value) for name, value in law.constants().items()}
        size = None if options.parameters is None else options.parameters + 0 * draws["utilization"]
        if options.budget is not None:
            flop, hours = budget_flop(options, peak, draws)
        else:
            flop = _flop_for(constants, options.reach, size)
            hours = gpu_hours_of(flop, peak, draws["utilization"])
        parameters, tokens = _spread(constants, flop) if size is None else (size, flop / _each(size))
        loss = (
            scaling_laws.loss(constants, parameters, tokens)
            if options.budget is not None
            else np.full(np.shape(flop), options.reach)
        )
        return {
            "loss": loss,
            "perplexity": np.exp(np.minimum(loss, MOST_NATS)),
            "parameters": parameters,
            "tokens": tokens,
            "flop": flop,
            "gpu_hours": hours,
            "days": hours / 24 / options.devices,
            "critical_batch_tokens": scaling_laws.critical_batch_tokens(loss),
            **running_costs(hours, draws),
        }

    return of


def _spread(constants: Mapping[str, Any], flop: Any) -> tuple[Any, Any]:
    """The parameters and tokens of least loss; both without end where the FLOP are."""
    finite = np.where(np.isinf(flop), 1.0, flop)
    parameters, tokens = (np.where(np.isinf(flop), np.inf, each) for each in scaling_laws.optimum(constants, finite))
    return parameters, tokens


def _each(parameters: Any) -> Any:
    return scaling_laws.FLOP_PER_PARAMETER_TOKEN * parameters


def _flop_for(constants: Mapping[str, Any], loss: float, parameters: Any) -> Any:
    """FLOP that reach a loss; infinite for draws of the law that never do. Raises Unreachable."""
    target = loss + 0 * constants["e"]
    if parameters is None:
        flop = scaling_laws.flop_for(constants, target)
    else:
        flop = _each(parameters) * scaling_laws.tokens_for(constants, target, parameters)
    return np.where(np.isnan(flop), np.inf, flop)


def _contrast(options: Namespace, law: scaling_laws.Law, flop: float) -> dict[str, dict[str, float]]:
    """What other laws buy for the same FLOP. None where a size or a loss is given."""
    if options.parameters is not None or options.budget is None:
        return {}
    found = {}
    for other in scaling_laws.LAWS.values():
        if other is not law:
            parameters, tokens = scaling_laws.optimum(other.constants(), np.asarray([flop]))
            loss = scaling_laws.loss(other.constants(), parameters, tokens)
            found[other.name] = (float(parameters[0]), float(tokens[0]), float(loss[0]))
    parameters, tokens = scaling_laws.kaplan_optimum(np.asarray([flop]))
    kaplan = float(scaling_laws.kaplan_loss(parameters, tokens)[0])
    found["kaplan2020"] = (float(parameters[0]), float(tokens[0]), kaplan)
    return {name: dict(zip(("parameters", "tokens", "loss"), each, strict=True)) for name, each in found.items()}


def shape(parameters: float, sequence: int, vocabulary: int) -> Transformer:
    """A transformer of about so many parameters, heads of 128 and about 128 times as wide as deep, as GPT-3 is.

    Layers and heads are multiples of 4 and 8 where there are enough of them, so that there is something to split.
    """
    outside = vocabulary + sequence

    def of(layers: int) -> Transformer:
        inside = 12 * layers
        width = (math.sqrt(outside**2 + 4 * inside * parameters) - outside) / (2 * inside)
        even = 8 if width >= 16 * HEAD else 1
        heads = max(even, round(width / HEAD / even) * even)
        return Transformer(layers, heads * HEAD, heads, sequence, vocabulary)

    def far(model: Transformer) -> float:
        """From the parameters asked for, and less so from the aspect."""
        return 4 * abs(math.log(model.parameters / parameters)) + abs(math.log(model.width / model.layers / ASPECT))

    return min((of(layers) for layers in (1, 2, *range(4, 257, 4))), key=far)


def _fit(options: Namespace, parameters: float, critical_tokens: float) -> DevicePlan | None:
    """The fastest plan on the devices asked for, and the fewest that would do.

    None without memory or bandwidth, and for so few parameters that the vocabulary alone has more.
    """
    cluster = _cluster(options)
    if cluster is None or not (math.isfinite(parameters) and math.isfinite(critical_tokens)):
        return None
    from analysis.project.parallelism.plans import plans

    model = shape(parameters, options.sequence, options.vocabulary)
    if model.parameters > MOST_OVER * parameters:
        return None
    batch = options.batch or _batch(critical_tokens / options.sequence, options.devices)
    found = plans(model, options.devices, batch, cluster)
    plan, step = found[0] if found else (None, None)
    least = options.devices if found else _least(model, critical_tokens, options, cluster)
    return DevicePlan(model, options.devices, batch, cluster.memory_bytes, plan, step, least)


def _batch(sequences: float, devices: int) -> int:
    """Sequences a step: the largest power of two times the odd part of the devices that is not above; at least that."""
    odd = devices // (devices & -devices)
    return int(odd * 2 ** max(0, math.floor(math.log2(max(sequences / odd, 1)))))


def _least(model: Transformer, critical_tokens: float, options: Namespace, cluster: Cluster) -> int | None:
    """The fewest in powers of two; weights alone say how many it takes at least."""
    from analysis.project.parallelism import WEIGHT_BYTES
    from analysis.project.parallelism.plans import plans

    devices: int = 2 ** max(0, math.ceil(math.log2(WEIGHT_BYTES * model.parameters / cluster.memory_bytes)))
    while devices <= MOST_DEVICES:
        batch = options.batch or _batch(critical_tokens / options.sequence, devices)
        if plans(model, devices, batch, cluster):
            return devices
        devices *= 2
    return None


def _cluster(options: Namespace) -> Cluster | None:
    from analysis.devices import PRECISIONS, between, peaks, within
    from analysis.devices import memory as devices_memory
    from analysis.project.parallelism import Cluster

    device, memory = peaks.lookup(options.device), devices_memory.lookup(options.device)
    if device is None or memory is None or device.bandwidth_bytes_per_s is None:
        return None
    peak = options.peak or device.peaks.get(PRECISIONS[options.precision].matmul_unit)
    if peak is None:
        return None
    filled = SPARE * memory.memory_bytes
    return Cluster(peak, device.bandwidth_bytes_per_s, filled, within(device), between(device))


def _title(options: Namespace, reached: ReachedUtilization) -> str:
    where = f"on {reached.device}, {reached.precision}"
    size = "" if options.parameters is None else f", {quantity(options.parameters)} parameters"
    if options.budget is None:
        return f"a loss of {options.reach:g} nats a token {where}{size}"
    value, unit = options.budget
    return f"{value:g} {unit} of a transformer {where}{size}"


def _notes(options: Namespace, law: scaling_laws.Law, flop: float, parameters: float) -> list[str]:
    """What the numbers leave out here."""
    found = [f"law: {law.source}; parameters with embeddings, FLOP as 6 × parameters × tokens"]
    low, high = scaling_laws.FITTED_FLOP
    if not low <= flop <= high:
        found.append(f"extrapolated: the law was fitted from {quantity(low)} to {quantity(high)} FLOP")
    if law.covariance is None:
        found.append("the law has no interval: its constants were published without their covariance")
    if math.isfinite(parameters):
        model = shape(parameters, options.sequence, options.vocabulary)
        share = 3 * model.forward_flop(1)[1] / (_each(parameters) * options.sequence)
        found.append(f"attention over {options.sequence} tokens adds {100 * share:.1f} % to these FLOP")
    return found
