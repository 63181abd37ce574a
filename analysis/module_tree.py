"""Sums a profiled step by module, to show where a model's FLOP, bytes and time are.

    utilization = Σ (model FLOP ÷ peak of the operation's unit) ÷ (time of the operations + the waits before them)

`tree` takes a `StepProfile`, and returns path → `ModuleNode` with all operations below it; the root holds every
operation of the step. Sums are exact: parameters (each at the first module that has it), FLOP, bytes, mean times of
operations and waits. Times are taken under the profiler. Forward includes the loss, and backward the time of
recomputation, whose FLOP are summed separately and are not model FLOP. Not claimed: that a module ran alone from its
first operation to its last.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from analysis.roofline import RECOMPUTE, RooflinePoint, main_bound, moved_bytes, roofline_points, time_by_bound
from results.records.answers import Machine, StepModule, StepOperation, StepProfile

SIDES = {"forward": "forward", "loss": "forward", "backward": "backward", "recompute": "backward"}
"""Phase → the pass that it is shown with; every other phase belongs to the optimizer."""

OPTIMIZER = "optimizer"


@dataclass(frozen=True, kw_only=True)
class ModuleNode:
    """One module with everything below it. Times are None where none of its operations was timed.

    counted_parameters: those that no earlier module had, so that they add up over disjoint modules. unknown_calls: pass
    (or "recompute") → number of operations without a rule, whose FLOP are left out. unknown_time_s: the time of these
    operations; None where it was not measured. untimed_calls: pass → number of operations without a time. untimed_flop:
    their model FLOP. If `unknown_calls` of a pass or `untimed_flop` is above 0, utilization and rate are None.
    """

    module: str
    type: str
    settings: str = ""
    depth: int = 0
    children: tuple[str, ...] = ()
    parameters: int = 0
    counted_parameters: int = 0
    operations: int = 0
    forward_flop: int = 0
    backward_flop: int = 0
    optimizer_flop: int = 0
    recompute_flop: int = 0
    other_flop: int = 0
    moved_bytes: int = 0
    kernels: float | None = None
    forward_time_s: float | None = None
    backward_time_s: float | None = None
    optimizer_time_s: float | None = None
    waited_s: float | None = None
    utilization_ratio: float | None = None
    bound: str = ""
    unknown_calls: Mapping[str, int] = field(default_factory=dict)
    unknown_time_s: float | None = 0.0
    untimed_flop: int = 0
    untimed_calls: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The last part of the module's path; "" for the root."""
        return self.module.rpartition(".")[2]

    @property
    def model_flop(self) -> int:
        """Model FLOP of all passes, without recomputation."""
        return self.forward_flop + self.backward_flop + self.optimizer_flop

    def unknowns(self, *passes: str) -> int:
        """Return the operations of these passes that no rule counts; of all but recomputation if none is named."""
        return sum(self.unknown_calls.get(side, 0) for side in passes or ("forward", "backward", OPTIMIZER))

    def at_least(self, *passes: str) -> str:
        """Prefix of these passes' FLOP where some are not counted."""
        return "≥ " if self.unknowns(*passes) else ""

    def at_least_time(self, side: str) -> str:
        """Prefix of a pass's time where some of its operations have none."""
        return "≥ " if self.untimed_calls.get(side) else ""

    @property
    def knows_all(self) -> bool:
        """Whether all its operations have a count, recomputation included, as `other_flop` requires."""
        return not any(self.unknown_calls.values())

    @property
    def unknown_time_ratio(self) -> float | None:
        """Share of its operations' time that those without a count took; None where one of these has no time, or none
        of its operations has one."""
        return None if self.unknown_time_s is None or not self.time_s else self.unknown_time_s / self.time_s

    @property
    def forward_mac(self) -> int:
        """Multiply-adds of the forward pass."""
        return self.forward_flop // 2

    @property
    def time_s(self) -> float | None:
        """Seconds of all its operations; None where none was timed."""
        return _known_sum((self.forward_time_s, self.backward_time_s, self.optimizer_time_s))

    @property
    def flop_per_s(self) -> float | None:
        """Achieved rate: model FLOP ÷ time of its operations and the waits before them, as in `utilization_ratio`; None
        where an operation has no count, a product has no time, or nothing was timed."""
        taken_s = (self.time_s or 0.0) + (self.waited_s or 0.0)
        complete = not self.unknowns() and not self.untimed_flop
        return self.model_flop / taken_s if self.time_s and complete else None


def tree(profile: StepProfile) -> dict[str, ModuleNode]:
    """Return path → module, in the profile's order, the root ("") first.

    An operation whose path is not a module counts for the nearest one above it. A profile without modules has only a
    root, of the model's name.
    """
    modules = profile.modules or (StepModule(module="", type=profile.model, parameters=profile.parameters),)
    if all(module.module for module in modules):
        modules = (StepModule(module="", type=profile.model, parameters=profile.parameters), *modules)
    known = {module.module for module in modules}
    positions: dict[str, list[int]] = defaultdict(list)
    for position, operation in enumerate(profile.operations):
        for path in above(nearest(operation.module, known), known):
            positions[path].append(position)
    counted: Counter[str] = Counter()
    children: dict[str, list[str]] = defaultdict(list)
    chains = {module.module: above(module.module, known) for module in modules}
    for module in modules:
        for path in chains[module.module]:
            counted[path] += module.own_parameters
        if module.module:
            children[chains[module.module][1]].append(module.module)
    limits, machine = roofline_points(profile), profile.machine or Machine()
    nodes = {}
    for module in modules:
        path = module.module
        own = [(profile.operations[position], limits[position]) for position in positions[path]]
        node = _node(module, own, machine)
        depth, below = len(chains[path]) - 1, tuple(children.get(path, ()))
        nodes[path] = replace(node, depth=depth, children=below, counted_parameters=counted[path])
    return nodes


def nearest(path: str, known: Iterable[str]) -> str:
    """Return the path itself or the nearest known one above it; the root in the end."""
    while path and path not in known:
        path = path.rpartition(".")[0]
    return path


def above(path: str, known: Iterable[str]) -> list[str]:
    """Return a module and all modules above it, the root last."""
    chain = [path]
    while path:
        path = nearest(path.rpartition(".")[0], known)
        chain.append(path)
    return chain


def _node(module: StepModule, own: Sequence[tuple[StepOperation, RooflinePoint]], machine: Machine) -> ModuleNode:
    operations = [operation for operation, _ in own]
    flop: Counter[str] = Counter()
    for operation in operations:
        flop[operation.phase] += operation.at_least_flop
    waits_s = [operation.waited_s or 0.0 for operation in operations]
    unknown, untimed = ([o for o in operations if not o.understood], [o for o in operations if o.time_s is None])
    return ModuleNode(
        module=module.module,
        type=module.type,
        settings=module.settings,
        parameters=module.parameters,
        operations=len(operations),
        forward_flop=flop["forward"] + flop["loss"],
        backward_flop=flop["backward"],
        optimizer_flop=flop[OPTIMIZER],
        recompute_flop=flop[RECOMPUTE],
        other_flop=sum(operation.other_flop or 0 for operation in operations),
        moved_bytes=sum(moved_bytes(operation) for operation in operations),
        kernels=_known_sum(operation.kernels for operation in operations),
        forward_time_s=_known_sum(o.time_s for o in operations if _side(o) == "forward"),
        backward_time_s=_known_sum(o.time_s for o in operations if _side(o) == "backward"),
        optimizer_time_s=_known_sum(o.time_s for o in operations if _side(o) == OPTIMIZER),
        waited_s=_known_sum(operation.waited_s for operation in operations),
        utilization_ratio=_utilization(operations, machine),
        bound=main_bound(time_by_bound(operations, [limit for _, limit in own], waits_s)),
        unknown_calls=Counter(o.phase if o.phase == RECOMPUTE else _side(o) for o in unknown),
        untimed_flop=sum(o.at_least_flop for o in untimed if o.phase != RECOMPUTE),
        untimed_calls=Counter(map(_side, untimed)),
        unknown_time_s=None if any(o.time_s is None for o in unknown) else sum(o.time_s or 0.0 for o in unknown),
    )


def _side(operation: StepOperation) -> str:
    return SIDES.get(operation.phase, OPTIMIZER)


def _known_sum(values: Iterable[float | None]) -> float | None:
    """Sum the known values; None where none is known."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _utilization(operations: Sequence[StepOperation], machine: Machine) -> float | None:
    """Return the utilization; None without a time or a peak, or where the FLOP of an operation or the time or peak of a
    product is unknown."""
    counting = [operation for operation in operations if operation.phase != RECOMPUTE]
    products = [operation for operation in counting if operation.model_flop]
    known = all(machine.peak_by_unit.get(o.unit) and o.time_s is not None for o in products)
    taken_s = sum((o.time_s or 0.0) + (o.waited_s or 0.0) for o in operations if o.time_s is not None)
    if not known or not all(o.understood for o in counting) or not taken_s or not machine.peak_by_unit:
        return None
    return sum(float(o.at_least_flop / machine.peak_by_unit[o.unit]) for o in products) / taken_s
