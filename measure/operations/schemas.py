"""Reads an operator's schema to describe one call: names of its tensors, its other arguments, the tensors it writes.

`plan_of` takes an operator and returns its `Plan`; `Plan.describe` returns the `Description` of a call. Both rely on
`OpOverload._schema`, and on short tables of operators whose schemas are incomplete. Plans are kept per default dtype,
which decides the dtype of `empty` and of an integer tensor times 0.5. `Gradients` describes a backward call by the
inputs that need a gradient. The cost of a call is decided in `analysis/operators`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from analysis.operators.cost import NEEDS, STORED
from analysis.operators.registry import kind_of, rule_of
from results.errors import Unavailable
from results.records.counts import Operation

NOT_RECORDED = ("prim", "profiler")
"""Namespaces of queries and markers that run nothing: prim.device, profiler._record_function_enter_new."""

QUERIES = frozenset(
    (
        "aten.dim",
        "aten.is_contiguous",
        "aten.is_non_overlapping_and_dense",
        "aten.is_strides_like_format",
        "aten.numel",
        "aten.size",
        "aten.storage_offset",
        "aten.stride",
        "aten.sym_is_contiguous",
        "aten.sym_numel",
        "aten.sym_size",
        "aten.sym_storage_offset",
        "aten.sym_stride",
    )
)
"""Questions about a tensor's form, which reach a dispatch mode where sizes are symbolic."""

HIDDEN_WRITES = {
    "aten.native_batch_norm": ("training", ("running_mean", "running_var")),
    "aten.cudnn_batch_norm": ("training", ("running_mean", "running_var")),
    "aten.miopen_batch_norm": ("training", ("running_mean", "running_var")),
    "aten.batch_norm_gather_stats": (None, ("running_mean", "running_var")),
    "aten.batch_norm_gather_stats_with_counts": (None, ("running_mean", "running_var")),
}
"""Operator → (condition, tensors that it writes although its schema declares no mutation). condition: an argument that
must be true; None: always."""

UNMARKED_VIEWS = ("aten._unsafe_view",)
"""Operators whose result shares the memory of their argument although their schema does not say so."""

NOT_ATTRIBUTES = frozenset(("dtype", "device", "layout", "memory_format", "generator", "pin_memory"))

MOVING = frozenset(("aten.resize_", "aten.resize_as_", "aten.set_"))
"""Operators that change the size of an existing storage, or exchange it."""


@dataclass(frozen=True, slots=True)
class Description:
    """The part of an Operation that every call of one signature shares."""

    name: str
    kind: str
    input_names: tuple[str, ...]
    input_shapes: tuple[tuple[Any, ...], ...]
    input_dtypes: tuple[str, ...]
    output_shapes: tuple[tuple[Any, ...], ...]
    output_dtypes: tuple[str, ...]
    attributes: Mapping[str, Any]

    def operation(self) -> Operation:
        """Return the record that formulas read, without index, phase, module and storages."""
        return Operation(
            0, self.name, self.kind, "", "", None, None, self.input_names, self.input_shapes, self.input_dtypes,
            self.output_shapes, self.output_dtypes, self.attributes, (), (),
        )  # fmt: skip


class Argument(NamedTuple):
    """One argument of a schema. default: as a value of JSON. attribute: whether its value is kept if it is not a
    tensor."""

    name: str
    has_default: bool
    default: Any
    takes_tensors: bool
    attribute: bool


class Plan:
    """What is known about one operator before its first call.

    recorded: whether its calls belong in the table. resizes: whether a storage may have another size afterwards.
    makes_node: False for detach, whose output autograd does not see. written: (position, name) of the tensor arguments
    that it writes and does not return; hidden: those that its schema does not mark. returns_self: whether it only
    changes the values of its first argument. is_view: whether it returns a view, or a list of views, of its first
    argument, its only tensor. again: whether it writes nothing and only returns new tensors, so that its result can be
    made again. composes: whether it has no rule, and is made of others, which are recorded in its place. mixed: whether
    an argument is a list whose items may be of several types. described: signature → description, on fake tensors;
    returned: signature → its result.
    """

    __slots__ = (
        "again",
        "arguments",
        "composes",
        "described",
        "func",
        "hidden",
        "is_view",
        "kind",
        "makes_node",
        "mixed",
        "name",
        "overload",
        "recorded",
        "resizes",
        "returned",
        "returns_self",
        "written",
    )

    def __init__(self, func: Any) -> None:
        self.func = func  # kept alive, so that its id stays its own
        if isinstance(func, torch._ops.OpOverload):
            namespace, name, self.overload = func.namespace, func._schema.name.partition("::")[2], func._overloadname
        else:  # a higher-order operator
            namespace, name, self.overload = "higher_order", func.name(), ""
        self.name = f"{namespace}.{name}"
        self.kind = kind_of(self.name)
        schema = getattr(func, "_schema", None)
        is_question = schema is not None and "Tensor" not in str(schema)  # such as torchvision._cuda_version
        self.recorded = not is_question and namespace not in NOT_RECORDED and self.name not in QUERIES
        given = schema.arguments if schema is not None else ()
        defaults = [_json_able(a.default_value) if a.has_default_value() else None for a in given]
        self.arguments = tuple(
            Argument(a.name, a.has_default_value(), default, "Tensor" in str(a.type), a.name not in NOT_ATTRIBUTES)
            for a, default in zip(given, defaults, strict=True)
        )
        self.composes = rule_of(self.name) is None and is_composite(func)
        tags = getattr(func, "tags", ())
        self.resizes = self.name in MOVING or "out" in self.overload
        dynamic = namespace != "aten" or torch.Tag.dynamic_output_shape in tags or self.resizes
        self.makes_node = name not in ("detach", "detach_", "alias")
        self.hidden = HIDDEN_WRITES.get(self.name)
        self.written = _unreturned_writes(schema)
        self.returns_self = _returns_self(schema) and not (
            dynamic or self.written or self.hidden or torch.Tag.inplace_view in tags
        )
        self.is_view = self.name in UNMARKED_VIEWS or (namespace == "aten" and _is_view(func))
        self.again = not dynamic and not self.written and _is_functional(schema, tags)
        self.mixed = schema is None or any(
            "List" in kind and not any(f"List[{plain}]" in kind for plain in ("int", "SymInt", "float", "bool"))
            for kind in (str(argument.type) for argument in schema.arguments)
        )
        self.described: dict[Any, Description] = {}
        self.returned: dict[Any, Any] = {}

    def value(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the value of the argument `name`; its default, or None, if it was not passed."""
        for position, argument in enumerate(self.arguments):
            if argument.name == name:
                return args[position] if position < len(args) else kwargs.get(name, argument.default)
        return None

    def also_written(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Return the input tensors that a call writes and does not return; hidden writes included."""
        written = [args[position] if position < len(args) else kwargs.get(name) for position, name in self.written]
        if self.hidden is not None:
            condition, names = self.hidden
            if condition is None or self.value(condition, args, kwargs):
                written += [self.value(name, args, kwargs) for name in names]
        return tensors_in(written)

    def describe(self, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Sequence[Any], out: Any) -> Description:
        """Describe the calls with this signature.

        shapes: sizes of the input tensors before the call, in the order of the call's arguments. This is the schema's
        order: the dispatcher passes arguments by position where it can, and the others in order.
        """
        names: list[str] = []
        tensors: list[torch.Tensor] = []
        attributes: dict[str, Any] = {}
        unnamed = (Argument(f"args[{i}]", False, None, True, True) for i in range(len(args)))
        for position, argument in enumerate(self.arguments or unnamed):
            name = argument.name
            if position >= len(args) and name not in kwargs and not argument.has_default:
                continue
            value = args[position] if position < len(args) else kwargs.get(name, argument.default)
            if isinstance(value, torch.Tensor):
                names.append(name)
                tensors.append(value)
            elif argument.takes_tensors and isinstance(value, (list, tuple)):
                names += [f"{name}[{i}]" for i, item in enumerate(value) if item is not None]
                tensors += [item for item in value if item is not None]
            elif argument.attribute and not (argument.takes_tensors and value is None):
                attributes[name] = _json_able(value)
        if self.overload not in ("default", "Tensor", ""):
            attributes["overload"] = self.overload
        outputs = tensors_in((out,))
        return Description(
            name=self.name,
            kind=self.kind,
            input_names=tuple(names),
            input_shapes=tuple([tuple(map(int, shape)) for shape, _ in zip(shapes, tensors, strict=True)]),
            input_dtypes=tuple([dtype_name(tensor.dtype) for tensor in tensors]),
            output_shapes=tuple([tuple(map(int, tensor.shape)) for tensor in outputs]),
            output_dtypes=tuple([dtype_name(tensor.dtype) for tensor in outputs]),
            attributes=attributes,
        )


def _unreturned_writes(schema: Any) -> tuple[tuple[int, str], ...]:
    if schema is None:
        return ()
    returned = {name for r in schema.returns if r.alias_info is not None for name in r.alias_info.before_set}
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(schema.arguments)
        if (info := argument.alias_info) is not None and info.is_write and not info.before_set & returned
    )


def _returns_self(schema: Any) -> bool:
    """Return whether the only result is the first argument, written in place."""
    if schema is None or len(schema.returns) != 1 or not schema.arguments:
        return False
    taken, returned = schema.arguments[0].alias_info, schema.returns[0].alias_info
    return bool(
        taken is not None
        and returned is not None
        and taken.is_write
        and taken.before_set == returned.before_set
        and str(schema.arguments[0].type) == "Tensor"
    )


def _is_functional(schema: Any, tags: Collection[Any]) -> bool:
    """Return whether nothing is written and all results are new tensors, whose sizes depend on no value."""
    if schema is None or torch.Tag.data_dependent_output in tags or torch.Tag.inplace_view in tags:
        return False
    aliased = any(argument.alias_info is not None for argument in (*schema.arguments, *schema.returns))
    return not aliased and bool(schema.returns) and all("Tensor" in str(argument.type) for argument in schema.returns)


def _is_view(func: Any) -> bool:
    """Return whether the operator has a kernel that makes views of its only tensor; a composed operator may copy."""
    schema = func._schema
    if not func.is_view or is_composite(func):
        return False
    tensors = [position for position, argument in enumerate(schema.arguments) if "Tensor" in str(argument.type)]
    return tensors == [0] and [str(r.type) for r in schema.returns] in (["Tensor"], ["List[Tensor]"])


def is_composite(func: Any) -> bool:
    """Return whether an operator is only made of others."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return isinstance(func, torch._ops.OpOverload) and has_kernel(func.name(), "CompositeImplicitAutograd")


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's name without "torch."."""
    return str(dtype).removeprefix("torch.")


_MKLDNN: Any = vars(torch)["_mkldnn"]  # a layout that torch does not declare
_DENSE = (torch.strided, _MKLDNN)


def sparse(values: Any) -> bool:
    """Return whether a tensor among these values stores only some of its numbers: its sizes do not determine a
    product's cost."""
    return any(tensor.layout not in _DENSE for tensor in tensors_in(values))


def with_stored(described: Description, values: Sequence[Any]) -> Description:
    """Describe a call with sparse tensors, with the number of values that each of them stores. A product of ATen gets
    another name, such as "sparse.mm", or with several sparse tensors "sparse.mm_of_sparse", which no rule counts.

    Raises Unavailable for fake and meta tensors, whose number of values is unknown.
    """
    stored: dict[str, int] = {}
    for name, tensor in zip(described.input_names, tensors_in(values), strict=True):
        if tensor.layout not in _DENSE:
            if isinstance(tensor, FakeTensor) or tensor.is_meta:
                raise Unavailable(f"how many values a tensor of the layout {tensor.layout} stores is not known")
            numbers = tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()
            stored[name] = numbers.numel()
    space, _, bare = described.name.partition(".")
    if space == "aten" and described.kind and "sparse" not in bare:
        bare = bare if len(stored) == 1 else f"{bare}_of_sparse"
        described = replace(described, name=f"sparse.{bare}", kind=kind_of(f"sparse.{bare}"))
    return replace(described, attributes={**described.attributes, STORED: stored})


WHOLE = ("attention", "recurrent")
"""Kinds of operations that contain their products, and are one operation in the backward pass."""
TIME_FIRST = "aten.conv_tbc"
WITHOUT_MASK = (TIME_FIRST, "aten._trilinear", "torchvision.deform_conv2d")
"""Other operations whose backward pass does not know which gradients are needed, or shares a product between them."""


class Gradients:
    """Records which inputs of forward calls need a gradient, and corrects the count of their backward calls by that.

    A kernel may compute gradients that nothing needs. The backward pass of conv_tbc runs as the products of its taps
    without the padding: the first of them is described as the whole. The caller identifies a forward call by a number.
    """

    def __init__(self) -> None:
        self._forward: dict[int | None, tuple[list[str], Description]] = {}
        self._whole: set[tuple[int | None, int]] = set()

    def note(self, number: int, call: Description, inputs: Iterable[Any]) -> None:
        """Note a forward call; inside of a transform of torch.func the needs of its inputs are unknown."""
        if call.kind not in WHOLE and call.name not in WITHOUT_MASK:
            return
        is_known = torch._C._functorch.maybe_current_level() is None
        pairs = zip(call.input_names, tensors_in(inputs), strict=True)
        self._forward.setdefault(number, ([name for name, tensor in pairs if is_known and tensor.requires_grad], call))

    def seen(self, call: Description, inputs: Iterable[Any]) -> Description | None:
        """Note a call of either pass that has just run, and return its description as `of_backward` does in a backward
        pass. Forward calls are identified by the numbers of their nodes."""
        node = torch._C._current_autograd_node()
        needed = call if node is None else self.of_backward(node._sequence_nr(), call)
        if torch.is_grad_enabled() or not call.name.startswith("aten."):  # other libraries' nodes turn gradients off
            self.note(torch._C._autograd._get_sequence_nr() - 1, call, inputs)
        return needed

    def of_backward(self, number: int | None, call: Description) -> Description | None:
        """Describe a call in the backward pass of a forward call; None for a part of a call that was described as a
        whole."""
        needs, forward = self._forward.get(number, ([], call))
        if forward.name == TIME_FIRST and call.kind == "matmul":
            run = number, torch._C._current_graph_task_id()
            if run in self._whole:
                return None
            self._whole.add(run)
            call = replace(
                forward,
                name=f"{TIME_FIRST}_backward",
                input_names=("grad", *forward.input_names),
                input_shapes=(*forward.output_shapes, *forward.input_shapes),
                input_dtypes=(*forward.output_dtypes, *forward.input_dtypes),
                output_shapes=forward.input_shapes,
                output_dtypes=forward.input_dtypes,
            )
        return replace(call, attributes={**call.attributes, NEEDS: needs}) if needs else call


def tensors_in(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the tensors among some arguments or outputs, in order, those in lists and tuples included."""
    tensors: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            tensors.append(value)
        elif isinstance(value, (list, tuple)):
            tensors.extend(tensors_in(value))
    return tensors


_PLAIN = (bool, int, float, str, type(None))


def _json_able(value: Any) -> Any:
    if type(value) in _PLAIN:
        return value
    if isinstance(value, (list, tuple)):
        return [_json_able(item) for item in value]
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return value if isinstance(value, _PLAIN) else str(value)


_PLANS: dict[torch.dtype, dict[int, Plan]] = {}
"""Default dtype → id of an operator → its plan, which keeps the operator alive."""


def plan_of(func: Any) -> Plan:
    """Return the plan of an operator under the present default dtype."""
    plans = _PLANS.setdefault(torch.get_default_dtype(), {})
    plan = plans.get(id(func))
    if plan is None:
        plan = plans[id(func)] = Plan(func)
    return plan


def clear_cache() -> None:
    """Forget all plans and signatures, as in a new process. Only benchmarks and tests need it."""
    _PLANS.clear()
