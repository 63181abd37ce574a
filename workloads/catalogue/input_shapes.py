"""The grammar of `--input`: shapes, types and names of what a model takes, as a person types them. No torch.

3x224x224                      one float32 tensor a sample; the batch dimension comes in front
128:int64:30522                128 whole numbers from 0 to 30521: token ids
:int64:10                      one whole number a sample, no dimension of its own
3x224x224,128:int64:1000       two inputs
pixel_values=3x32x32           an input by its name in forward(…)
"""

from __future__ import annotations

from dataclasses import dataclass

DTYPES = ("float32", "float64", "float16", "bfloat16", "int64", "int32", "bool")

GRAMMAR = "[NAME=]SIZExSIZE…[:DTYPE[:BELOW]], several with commas, such as 3x224x224 or 128:int64:30522"


@dataclass(frozen=True)
class Shape:
    """One input without its batch dimension. below: of whole numbers, the smallest that does not occur, else 0."""

    sizes: tuple[int, ...]
    dtype: str = "float32"
    below: int = 0
    name: str = ""


def parse_shapes(text: str) -> tuple[Shape, ...]:
    """The inputs in order, those without a name first. Raises ValueError in one line that shows the grammar."""
    shapes = tuple(_shape(part.strip(), text) for part in text.split(","))
    names = [shape.name for shape in shapes]
    if sorted(names, key=bool) != names:
        raise ValueError(f"--input {text!r}: an input without a name comes after one with a name")
    named = [name for name in names if name]
    if len(set(named)) != len(named):
        raise ValueError(f"--input {text!r}: expected each name once, got {', '.join(named)}")
    return shapes


def _shape(part: str, text: str) -> Shape:
    name, equals, rest = part.rpartition("=")
    sizes, *more = rest.split(":")
    if (equals and not name.isidentifier()) or len(more) > 2 or not (sizes or more):
        raise ValueError(f"--input {text!r}: expected {GRAMMAR}; got {part!r}")
    dtype = more[0] if more else "float32"
    if dtype not in DTYPES:
        raise ValueError(f"--input {text!r}: expected a dtype of {', '.join(DTYPES)}; got {dtype!r}")
    return Shape(tuple(_size(size, text) for size in sizes.split("x") if sizes), dtype, _below(dtype, more, text), name)


def _size(size: str, text: str) -> int:
    if not (size.isascii() and size.isdigit()) or int(size) < 1:
        raise ValueError(f"--input {text!r}: expected sizes of 1 or more with x between them, got {size!r}")
    return int(size)


def _below(dtype: str, more: list[str], text: str) -> int:
    """The bound of whole numbers, which they must have and others must not."""
    if not dtype.startswith("int"):
        if len(more) > 1:
            raise ValueError(f"--input {text!r}: only int64 and int32 have a bound, {dtype} has none")
        return 0
    bound = more[1] if len(more) > 1 else ""
    if not (bound.isascii() and bound.isdigit()) or int(bound) < 2:
        raise ValueError(f"--input {text!r}: {dtype} needs a bound of 2 or more, such as 128:{dtype}:30522")
    return int(bound)
