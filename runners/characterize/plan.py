"""Which recordings `runners.characterize` makes: for each workload its mix, then what else was asked of it.

The mix is one recording of each mode on each device, in the first of everything. Further thread counts and batch sizes
(parallelism) are recordings of training, each different from the mix in one thing. Names and sizes are checked here;
nothing slow is imported.
"""

from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from results.errors import Unavailable
from results.records.characterization import WorkloadRecording
from runners.cli.exits import Mistake, as_mistake
from workloads.catalogue.catalogue import ENTRIES, SUITES, entry, reason_not_trainable
from workloads.catalogue.entries import AS_CODED, AS_PAPER, SMALL
from workloads.catalogue.model_names import check

DEFAULT_OPTIMIZER = "sgd"
BOTH = "both"
BATCH = 8
WARM_UP_STEPS = 2

OWN = "own"
"""The optimizer that a workload brings."""


@dataclass(frozen=True)
class RecordingRequest:
    """One recording to make. recording: its row, without what comes of it. hyper: what the factory takes beside the
    name. profiled: steps under the profiler; costs: whether its operations are counted, too; alone: and timed alone."""

    recording: WorkloadRecording
    hyper: Mapping[str, Any] = field(default_factory=dict)
    plain: int = 12
    profiled: int = 12
    warm_up: int = WARM_UP_STEPS
    costs: bool = True
    alone: bool = False


def models_of(options: Namespace) -> tuple[str, ...]:
    """The names that were asked for, in their variant and scale. Raises Mistake for one that is unknown."""
    given = [options.models, options.suite, options.reproduce]
    if sum(one is not None for one in given) != 1:
        raise Mistake("expected one of --models, --suite, --reproduce, or a directory to report")
    suite = options.suite or options.reproduce
    wanted = options.models or SUITES[suite].models
    small = options.scale == "small" or (options.reproduce is not None and options.scale is None)
    variants = (AS_CODED, AS_PAPER) if options.variant == BOTH else (options.variant,)
    found = tuple(dict.fromkeys(_named(name, variant, small) for variant in variants for name in wanted))
    for name in found:
        with as_mistake(ValueError, Unavailable):
            check(name)
    return found


def _named(name: str, variant: str | None, small: bool) -> str:
    """The entry of a variant and scale, where the workload has it; else the name as it is."""
    scale = SMALL if small or name.endswith(SMALL) else ""
    base = name.removesuffix(SMALL)
    if variant == AS_PAPER and f"{base}@{AS_PAPER}" in ENTRIES:
        base = f"{base}@{AS_PAPER}"
    return f"{base}{scale}" if f"{base}{scale}" in ENTRIES else name


def requests(options: Namespace, devices: Sequence[str]) -> list[RecordingRequest]:
    """All recordings, a workload's together. devices: as they were found. Raises Mistake for a batch it cannot take."""
    found: list[RecordingRequest] = []
    for model in models_of(options):
        first = _first(model, options, devices[0])
        for each in _recordings(first, options, devices):
            wanted = replace(each, recording=len(found))
            found.append(
                RecordingRequest(
                    wanted,
                    hyper=_hyper(model, options),
                    plain=options.steps,
                    profiled=options.steps if (each.why in ("mix", "threads", "batch")) else 0,
                    costs=each.why == "mix",
                    alone=options.alone and each.why == "mix",
                )
            )
    return found


def _first(model: str, options: Namespace, device: str) -> WorkloadRecording:
    known = ENTRIES.get(model)
    batch_size = next(iter(options.batch_sizes), 0) or (known.batch_size if known is not None else 0) or BATCH
    if known is not None:
        reason = reason_not_trainable(model, _hyper(model, options), batch_size)
        if reason is not None:
            raise Mistake(f"{reason} (batch size {batch_size})")
    own = known is not None and bool(known.optimizer)
    return WorkloadRecording(
        recording=0,
        workload=model,
        variant=known.variant if known is not None else "",
        batch_size=batch_size,
        device=device,
        threads=options.threads[0] if device == "cpu" else None,
        precision=options.precision,
        layout=options.layout,
        optimizer=options.optimizer if options.optimizer != OWN or own else DEFAULT_OPTIMIZER,
    )


def _recordings(first: WorkloadRecording, options: Namespace, devices: Sequence[str]) -> Iterator[WorkloadRecording]:
    for device in devices:
        threads = options.threads if device == "cpu" else (None,)
        here = replace(first, device=device, threads=threads[0])
        for mode in options.modes:
            yield replace(here, mode=mode, optimizer=first.optimizer if mode == "training" else "")
        here = replace(here, mode=options.modes[0], optimizer=first.optimizer if "training" in options.modes else "")
        if options.modes[0] == "inference" and "training" in options.modes:
            here = replace(here, mode="training")
        for count in threads[1:]:
            yield replace(here, threads=count, why="threads")
        for size in options.batch_sizes[1:]:
            yield replace(here, batch_size=size, why="batch")


def _hyper(model: str, options: Namespace) -> dict[str, Any]:
    """The sizes of --size that the workload has; a model of another form than the catalogue's takes all."""
    asked = dict(options.hyper or {})
    if model not in ENTRIES:
        return asked
    return {name: value for name, value in asked.items() if name in entry(model).hyper}
