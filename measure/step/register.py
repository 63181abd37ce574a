"""A rule for an operation that this program does not know: a user's own, or another library's.

The rule is of this process; a command learns it from the model's file, which registers it when it is imported. Not
claimed: that the formula is right, and anything of an operation that no dispatcher sees.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any

from analysis.operators import registry
from analysis.operators.cost import STORED, Cost
from measure.dispatch import schemas
from results.records.counts import Operation

Formula = Callable[..., int]

_NAME = re.compile(r"[A-Za-z_]\w*(::|\.)[A-Za-z_]\w*")


def register(operation: str, formula: Formula | int, *, kind: str = "matmul") -> None:
    """Count calls of an operation by a formula from now on.

    operation: as torch.library names it, "namespace::name". formula: called with the sizes of the input tensors, one
    argument each, and `out` with those of the output tensors (one tuple, or a list of them where there are several):
    → FLOP of one call, a multiply-add being 2; with an argument `stored` how many values each sparse input stores, by
    the argument's name; or a number of FLOP for each call, such as 0. kind: of the operation; a
    product's ("convolution", "matmul", "attention", "recurrent") is model FLOP, any other kind's is not.
    Raises ValueError for a name, kind or formula that cannot be right, and for an operation that has a rule already.

    >>> import flopledger
    >>> flopledger.register("mylibrary::product", lambda a, b, out: 2 * a[0] * a[1] * b[1])
    """
    if not _NAME.fullmatch(operation):
        raise ValueError(f"expected an operation as 'namespace::name', got {operation!r}")
    name = operation.replace("::", ".")
    if kind not in registry.KINDS:
        raise ValueError(f"expected a kind of operation, got {kind!r}; there are: {', '.join(registry.KINDS)}")
    if not callable(formula) and not (isinstance(formula, int) and formula >= 0):
        raise ValueError(f"expected a function of sizes or a number of FLOP from 0 as formula, got {formula!r}")
    known = registry.rule_of(name)
    if known is not None and not isinstance(known.reader, _Reader):
        raise ValueError(f"expected an operation without a rule, got {operation!r}, which is a {known.kind} here")
    registry.add_rule(name, registry.Rule(kind, "counted", _Reader(operation, formula, kind in registry.PRODUCTS)))
    schemas.clear_cache()


class _Reader:
    """The cost of one call by a user's formula."""

    def __init__(self, operation: str, formula: Formula | int, is_product: bool) -> None:
        self._operation = operation
        self._formula = formula
        self._is_product = is_product

    def __call__(self, operation: Operation) -> Cost:
        flop = self._flop(operation)
        return Cost(model_flop=flop) if self._is_product else Cost(other_flop=flop)

    def _flop(self, operation: Operation) -> Any:
        if not callable(self._formula):
            return self._formula
        outputs = list(operation.output_shapes)
        named = {"out": outputs[0] if len(outputs) == 1 else outputs}
        if "stored" in inspect.signature(self._formula).parameters:
            named["stored"] = operation.attributes.get(STORED, {})
        try:
            return self._formula(*operation.input_shapes, **named)
        except Exception as fault:
            sizes = ", ".join(map(str, operation.input_shapes))
            raise ValueError(f"the formula of {self._operation} failed for inputs of {sizes}: {fault}") from fault
