"""Where a fault can be planted in a module, and the module's text with one fault.

A fault is one edit of a function: another operator, a doubled constant, a turned comparison, `and` for `or`, two
values in each other's place, a statement left out. Claims nothing about faults that need two edits.
"""

import ast
import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Site:
    """A node of a function that a fault replaces; `number` counts the sites of one kind within the function."""

    module: str
    function: str
    kind: str
    number: int
    node: ast.AST
    fault: ast.AST

    @property
    def key(self) -> str:
        return f"{self.module}:{self.function}:{self.kind}:{self.number}"


ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
COMPARISONS = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def other_operator(node: ast.AST) -> ast.AST | None:
    """a + b → a - b, and in-place forms; text joined by + is left alone."""
    if not isinstance(node, ast.BinOp | ast.AugAssign) or type(node.op) not in ARITHMETIC:
        return None
    parts = [part for part in ast.walk(node) if isinstance(part, ast.Constant)]
    if any(isinstance(part.value, str) for part in parts):
        return None
    fault = copy.deepcopy(node)
    fault.op = ARITHMETIC[type(node.op)]()
    return fault


def other_logic(node: ast.AST) -> ast.AST | None:
    """`and` ↔ `or`."""
    if not isinstance(node, ast.BoolOp):
        return None
    fault = copy.deepcopy(node)
    fault.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return fault


def other_constant(node: ast.AST) -> ast.AST | None:
    """A number doubled, 0 → 1, True ↔ False."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, bool | int | float):
        return None
    if isinstance(node.value, bool):
        return ast.Constant(not node.value)
    return ast.Constant(2 * node.value or 1)


def other_comparison(node: ast.AST) -> ast.AST | None:
    """< ↔ >=, == ↔ !=, in ↔ not in: the first of a chain."""
    if not isinstance(node, ast.Compare) or type(node.ops[0]) not in COMPARISONS:
        return None
    fault = copy.deepcopy(node)
    fault.ops[0] = COMPARISONS[type(node.ops[0])]()
    return fault


def other_order(node: ast.AST) -> ast.AST | None:
    """The first two values of a returned tuple, or of a record's keywords, changed for each other."""
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple) and len(node.value.elts) > 1:
        fault = copy.deepcopy(node)
        assert isinstance(fault.value, ast.Tuple)
        fault.value.elts[:2] = fault.value.elts[1::-1]
        return None if ast.dump(fault) == ast.dump(node) else fault
    if isinstance(node, ast.Call) and len(node.keywords) > 1 and all(word.arg for word in node.keywords[:2]):
        fault = copy.deepcopy(node)
        first, second = fault.keywords[:2]
        first.value, second.value = second.value, first.value
        return None if ast.dump(fault) == ast.dump(node) else fault
    return None


def no_statement(node: ast.AST) -> ast.AST | None:
    """A call for its effect, an in-place operation, a `raise` or a `continue` left out."""
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return ast.Pass() if called or isinstance(node, ast.AugAssign | ast.Raise | ast.Continue) else None


KINDS: dict[str, Callable[[ast.AST], ast.AST | None]] = {
    "operator": other_operator,
    "logic": other_logic,
    "constant": other_constant,
    "comparison": other_comparison,
    "order": other_order,
    "statement": no_statement,
}


def code_of(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function's body and defaults, in the order of the text; no annotations, no formatted strings."""
    for name, value in ast.iter_fields(function):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.FunctionDef | ast.ClassDef):
                continue  # before Python 3.12 what is in a formatted string has no place in the text
            yield child
            yield from code_of(child)


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """(qualified name, function or module) of each; tables at the top of a module belong to `<module>`."""
    if isinstance(tree, ast.Module):
        yield "<module>", tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef):
            yield prefix + child.name, child
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            yield from functions_of(child, f"{prefix}{child.name}.")


def sites_of(module: str, source: str) -> list[Site]:
    """Every site of a module."""
    found = []
    for name, function in functions_of(ast.parse(source)):
        counts: dict[str, int] = defaultdict(int)
        for node in code_of(function):
            for kind, change in KINDS.items():
                fault = change(node) if hasattr(node, "lineno") else None
                if fault is not None:
                    found.append(Site(module, name, kind, counts[kind], node, fault))
                    counts[kind] += 1
    return found


def planted(source: str, site: Site) -> str:
    """The source with one fault; all else stays as it is, to the letter."""
    node = site.node
    lines = source.encode().splitlines(keepends=True)  # ast counts columns in bytes
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    text = ast.unparse(site.fault)
    text = f"({text})" if isinstance(node, ast.expr) and not isinstance(node, ast.Constant) else text
    whole = source.encode()
    return (whole[:begin] + text.encode() + whole[end:]).decode()
