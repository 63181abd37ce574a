"""Backward against forward, exactly: the ratio of a model and its parts, and why 3 × forward is not its step.

Each product is asked for two gradients, each of which costs what it costs itself: backward is 2 × forward but for the
gradients that nobody asks for. Those are named, product by product, and add up to 2 × forward - backward to the last
FLOP. What is calculated a second time (checkpointing, the scores of fused attention) is executed and no model FLOP: it
stands beside. It says nothing of time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cleaning.accounts.rules.flop_counter_mode import ATTENTION_BACKWARD, attention_backward
from cleaning.accounts.vocabulary.items import exact_flop
from cleaning.profile import FORWARD
from cleaning.reconcile.backward_ratio import Closed, closed_form, ratios
from results.records.accounts import Account, AccountRatio
from results.records.cell import Run
from results.records.operations import Operation

EXACT = "exact"

INPUT, WEIGHT, FACTOR, OTHER, HOOKS, LOOSE = (
    "input_without_gradient",
    "weight_not_trained",
    "factor_without_gradient",
    "gradients_of_another_size",
    "gradient_hooks",
    "backward_of_nothing_forward",
)

REASONS = {
    INPUT: "gradients of inputs that nothing asks for",
    WEIGHT: "gradients of weights that are not trained",
    FACTOR: "gradients of factors that nothing asks for",
    OTHER: "operations whose gradients do not cost what they do",
    HOOKS: "products that hooks on gradients or saved tensors run in the backward pass",
    LOOSE: "products of the backward pass that belong to none of the forward pass",
}
"""Why 2 × forward is not backward → what it says, for people."""


@dataclass(frozen=True)
class Missing:
    """What one reason takes from 2 × forward (below 0: adds to it), and the modules where, the largest first."""

    reason: str
    flop: int
    modules: tuple[str, ...]


@dataclass(frozen=True)
class Backward:
    """One training step, in model FLOP. again_flop: what checkpointing calculates a second time; scores_flop: what
    fused attention does. embeds: whether there is an embedding. missing: their sum is 2 × forward - backward."""

    forward_flop: int
    backward_flop: int
    again_flop: int
    scores_flop: int
    embeds: bool
    closed: Closed
    missing: tuple[Missing, ...]
    ratios: tuple[AccountRatio, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Backward ÷ forward; None without a product."""
        return self.backward_flop / self.forward_flop if self.forward_flop else None

    @property
    def estimate_error(self) -> float | None:
        """3 × forward ÷ (forward + backward) - 1."""
        return 3 * self.forward_flop / (self.forward_flop + self.backward_flop) - 1 if self.forward_flop else None

    @property
    def executed_error(self) -> float | None:
        """3 × forward ÷ what the step executes - 1, products alone."""
        executed = self.forward_flop + self.backward_flop + self.again_flop + self.scores_flop
        return 3 * self.forward_flop / executed - 1 if executed else None


def backward(model: str, batch_size: int, table: Sequence[Operation], accounts: Iterable[Account] = ()) -> Backward:
    """The ratios of a training step, and those of the counters that have both passes."""
    sums = dict.fromkeys(("forward", "loss", "backward", "recompute"), 0)
    for operation in table:
        if operation.phase in sums:
            sums[operation.phase] += exact_flop(operation)
    return Backward(
        forward_flop=sum(sums[phase] for phase in FORWARD),
        backward_flop=sums["backward"],
        again_flop=sums["recompute"],
        scores_flop=sum(
            attention_backward(operation) - exact_flop(operation)
            for operation in table
            if operation.phase == "backward" and operation.name in ATTENTION_BACKWARD
        ),
        embeds=any(operation.kind == "embedding" for operation in table if operation.phase in FORWARD),
        closed=closed_form(table),
        missing=_missing(table),
        ratios=(*_exact(model, batch_size, table), *_of_counters(model, batch_size, accounts)),
    )


def _missing(table: Sequence[Operation]) -> tuple[Missing, ...]:
    """2 × forward - backward, by reason; the largest first."""
    products = {o.index: o for o in table if o.phase in FORWARD and exact_flop(o)}
    gradients: dict[int, list[Operation]] = {index: [] for index in products}
    made_of: dict[int, set[int]] = {}
    found: dict[str, dict[str, int]] = {reason: {} for reason in REASONS}
    written: set[int] = set()
    for operation in table:
        if operation.phase in FORWARD:
            written |= set(operation.writes) - set(operation.reads)  # a view writes nothing new
        if operation.in_hook:
            _note(made_of, operation)
        flop = exact_flop(operation) if operation.phase == "backward" else 0
        if flop and operation.in_hook:
            found[HOOKS][operation.module] = found[HOOKS].get(operation.module, 0) - flop
        elif flop and operation.forward_index in gradients:
            gradients[operation.forward_index].append(operation)
        elif flop:
            found[LOOSE][operation.module] = found[LOOSE].get(operation.module, 0) - flop
    for index, operation in products.items():
        for reason, flop in _of_product(operation, gradients[index], written, made_of):
            found[reason][operation.module] = found[reason].get(operation.module, 0) + flop
    missing = [
        Missing(reason, sum(flop.values()), tuple(sorted(flop, key=lambda module: -abs(flop[module]))))
        for reason, flop in found.items()
        if any(flop.values())
    ]
    return tuple(sorted(missing, key=lambda each: -abs(each.flop)))


def _note(made_of: dict[int, set[int]], operation: Operation) -> None:
    """What a hook writes is made of what it reads: a tensor that it saved otherwise stands for the one that was."""
    sources = {source for read in operation.reads for source in (read, *made_of.get(read, ()))}
    for storage in operation.writes:
        made_of.setdefault(storage, set()).update(sources)


def _of_product(
    operation: Operation, gradients: Sequence[Operation], written: set[int], made_of: Mapping[int, set[int]]
) -> Iterable[tuple[str, int]]:
    """(reason, what it takes) of one product; nothing where it has both gradients. made_of: storage that a hook wrote →
    those that it read; asked where the gradients read neither factor."""
    flop = exact_flop(operation)
    left = 2 * flop - sum(exact_flop(gradient) for gradient in gradients)
    if not left:
        return
    first, second = _needed_gradients(operation, gradients)
    if made_of and gradients and not (first or second):
        first, second = _needed_gradients(operation, gradients, made_of)
    missing = [(INPUT, first), (WEIGHT if _weight_storage(operation) not in written else FACTOR, second)]
    named = [(reason, flop) for reason, asked in missing if asked is False]
    yield from named if sum(part for _, part in named) == left else [(OTHER, left)]


def _needed_gradients(
    operation: Operation, gradients: Sequence[Operation], made_of: Mapping[int, set[int]] = MappingProxyType({})
) -> tuple[bool | None, bool | None]:
    """Whether the gradient of a product's input, and of its weight or second factor, is calculated; None: not known.

    A convolution's backward has a mask. The gradient of one factor of a matrix product reads the other one.
    """
    if not gradients:
        return False, False
    if all("output_mask" in gradient.attributes for gradient in gradients):
        masks = [gradient.attributes["output_mask"] for gradient in gradients]
        return any(bool(mask[0]) for mask in masks), any(bool(mask[1]) for mask in masks)
    if operation.kind != "matmul" or len(operation.reads) < 2:
        return None, None
    own = {storage for gradient in gradients for storage in gradient.reads}
    read = own.union(*(made_of.get(storage, ()) for storage in own))
    return operation.reads[-1] in read, operation.reads[-2] in read


def _weight_storage(operation: Operation) -> int | None:
    """The storage of a product's weight or second factor."""
    if "weight" in operation.input_names:
        return operation.reads[operation.input_names.index("weight")]
    return operation.reads[-1] if operation.reads else None


def _exact(model: str, batch_size: int, table: Sequence[Operation]) -> Iterable[AccountRatio]:
    run = Run(model=model, batch_size=batch_size, device="", cell_id="", attempt=0, sitting="", status="ok", methods=())
    for row in ratios(run, (), table, ()):
        yield AccountRatio(
            model=model,
            batch_size=batch_size,
            source=EXACT,
            level=row.level,
            name=row.name,
            forward_flop=row.forward_flop,
            backward_flop=row.backward_flop,
            ratio=row.ratio,
            reason=row.reason,
        )


def _of_counters(model: str, batch_size: int, accounts: Iterable[Account]) -> Iterable[AccountRatio]:
    counted: dict[str, dict[str, int]] = {}
    for account in accounts:
        if account.status == "ok" and account.flop is not None:
            counted.setdefault(account.counter, {})[account.phase] = account.flop
    for counter, flop in counted.items():
        if "backward" in flop and flop.get("forward"):
            yield AccountRatio(
                model=model,
                batch_size=batch_size,
                source=counter,
                level="model",
                forward_flop=flop["forward"],
                backward_flop=flop["backward"],
                ratio=flop["backward"] / flop["forward"],
            )
