"""Defines `Item`, one part of a counter's total, and the causes for which a total differs from the exact count.

The counters' rules (`cleaning/accounts/`) make items from a `CallRecording` (the calls of one model) and return them as
`Counted`. `explain.py` sums the items. A "native" number is one in the counter's own unit, FLOP or multiply-adds. All
counters share the causes (`CAUSES`); none of the causes means "other".
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from analysis.operators.registry import kind_of, model_flop
from results.records.calls import Call, CallRecording, Sized, tensors
from results.records.counts import Operation

PRODUCT = ""
"""No cause: the item is a convolution, matrix product, attention or recurrent layer, which the exact count contains,
too."""

CONVENTION = "multiply_add_as_1"
"""The only cause that is not an error: the counter's unit is a multiply-add."""

CAUSES = {
    CONVENTION: "a multiply-add is counted as 1, not as 2 FLOP",
    "bias_counted": "the additions of a bias are counted",
    "normalization_counted": "batch, layer, group or instance normalisation is counted",
    "activation_counted": "activation functions are counted",
    "activation_counted_twice": "an activation is counted as a module and again as the function that it calls",
    "pooling_counted": "pooling is counted",
    "pooling_counted_twice": "pooling is counted as a module and again as the function that it calls",
    "softmax_counted": "softmax is counted",
    "resizing_counted": "interpolation is counted",
    "resizing_counted_twice": "interpolation is counted by two functions that call one another",
    "sampling_counted": "sampling of a grid is counted",
    "addition_counted": "elementwise additions are counted",
    "multiplication_counted": "elementwise multiplications are counted",
    "gates_counted": "the scalar arithmetic of recurrent gates is counted",
    "attention_scalars_counted": "scaling and softmax inside of attention are counted",
    "parameters_as_operations": "a module's parameters are counted once a sample, as if each were one operation",
    "embedding_as_product": "an embedding is counted as the product with its whole table",
    "functional_not_seen": "a function called without a module that the counter hooks",
    "attention_not_seen": "fused attention has no rule",
    "attention_module_not_seen": "the products inside of a multi-head attention module have no rule",
    "recurrent_not_seen": "recurrent layers have no rule",
    "inner_products": "the matrix products inside an operator without a rule are counted",
    "operator_without_rule": "an operator that the counter has no rule for",
    "weight_calculation_not_seen": "products that calculate a layer's weight (a parametrization) are not counted",
    "custom_function_not_seen": "nothing is seen inside a function that defines its backward pass",
    "result_not_used": "what nothing uses is left out of the graph that is counted",
    "constants_folded": "what is calculated from constants alone is no part of the graph that is counted",
    "subclass_not_seen": "a module of a derived class: the counter asks for the class itself",
    "string_padding_not_seen": 'a convolution whose padding is a word, such as "same", has no rule',
    "not_two_dimensional": "convolutions that are not two-dimensional, or transposed, have no rule",
    "backward_not_counted": "the backward pass of this operation has no rule",
    "backward_as_twice_forward": "the backward pass is taken to be twice what was counted forward",
    "grouped_backward": "the weight gradient of a grouped convolution is multiplied by its groups",
    "recompute_counted": "what checkpointing calculates again in the backward pass is counted",
    "scores_computed_again": "fused attention calculates its scores again in the backward pass",
    "transposed_at_output": "a transposed convolution is counted at the positions of its output",
    "transposed_divided_by_groups": "a transposed convolution is divided by its groups twice",
    "without_batch": "a convolution's input without a batch is read as if its channels were the batch",
    "positions_ignored": "a linear layer is counted once a sample, whatever its positions",
    "name_taken_for_convolution": "a module is taken for a convolution by its name",
    "broadcast_from_first": "a product is sized by its first operand, which is broadcast",
    "vector_as_matrix": "a product with a vector is sized as if the vector were a matrix",
    "contraction_counted_twice": "a contraction is counted as a function and again as the one that it calls",
    "contraction_of_one": "an einsum of one operand, which multiplies nothing, is counted",
    "rounded_path": "the cost of a contraction is read from a rounded printout",
    "recurrent_steps": "the steps, layers or directions of a recurrent layer are counted differently",
    "attention_shapes": "the sizes of an attention module are read differently",
    "deformable_extra": "interpolation between pixels is counted as multiply-adds of a deformable convolution",
    "even_kernel": 'the output of an even kernel with the padding "same" is taken to be smaller',
    "complex_as_real": "a multiply-add of complex numbers is counted as one of real ones",
    "module_used_twice": "a module with several names is counted at each of them",
    "divided_by_batch": "what modules counted is divided by the batch, what functions counted is not",
    "rounded": "the total is cut to a whole number",
    "eval_graph": "what runs in evaluation and not in training, or the other way round",
}
"""Cause → its text. A test checks that the counters' rules use every cause and no other."""

Native = int | Fraction

FUSED_NOT_SEEN = {"attention": "attention_not_seen", "recurrent": "recurrent_not_seen"}
"""Kind that runs as one operator → the cause where a counter has no rule for it."""


@dataclass(frozen=True)
class Item:
    """One part of a counter's number.

    native: in the counter's own unit. cause: PRODUCT, or why it is counted though it is not a product. first, last: of
    a product, the operations that it stands for (first <= index < last; in a backward pass, they or their forward
    operations). fault: of a product, why its number is not that of those operations.
    """

    native: Native
    cause: str = PRODUCT
    kind: str = ""
    module: str = ""
    first: int = 0
    last: int = 0
    fault: str = ""


Counted = tuple[list[Item], Callable[[Operation], str]]
"""A counter's items of one pass, and the cause for a product without an item."""


def product(call: Call, native: Native, fault: str = "", kind: str = "matmul") -> Item:
    """Make the item of the products under a call."""
    return Item(native, PRODUCT, kind, call.path, call.first, call.last, fault)


def other(call: Call, cause: str, native: Native, kind: str) -> Item:
    """Make the item of something under a call that is not a product."""
    return Item(native, cause, kind, call.path)


def of_operation(operation: Operation, native: Native, cause: str = PRODUCT, fault: str = "") -> Item:
    """Make the item of a single operation."""
    here = operation.index
    return Item(native, cause, operation.kind, operation.module, here, here + 1, fault)


def real_flop(operation: Operation) -> int:
    """Return model FLOP by sizes only, where a complex multiply-add, which is four real ones, counts as one."""
    return model_flop(operation) // (4 if is_complex(operation) else 1)


def is_complex(operation: Operation) -> bool:
    """Return whether an operation works on complex numbers."""
    return any(dtype.startswith("complex") for dtype in operation.input_dtypes)


def in_phase(recording: CallRecording, phase: str) -> Iterator[Operation]:
    """Yield the operations of one pass."""
    return (operation for operation in recording.operations if operation.phase == phase)


def bound(call: Call, names: str) -> dict[str, Any]:
    """Return arguments by name, for a function whose positional arguments have these names; missing ones are left
    out."""
    return {**dict(zip(names.split(), call.arguments, strict=False)), **call.keywords}


def first_tensor(value: Any) -> Sized | None:
    """Return the first tensor in arguments or an output."""
    return next(tensors(value), None)


def in_and_out(call: Call) -> tuple[Sized, Sized]:
    """Return a module's first input and first output tensor. Raises ValueError where there is none."""
    inputs, output = first_tensor(call.arguments), first_tensor(call.output)
    if inputs is None or output is None:
        raise ValueError(f"{call.path}: expected a module with a tensor in and a tensor out")
    return inputs, output


def missed_by(cause_of_kind: Mapping[str, str], default: str) -> Callable[[Operation], str]:
    """Return a function that gives the cause by the missed operation's kind."""
    return lambda operation: cause_of_kind.get(kind_of(operation.name), default)
