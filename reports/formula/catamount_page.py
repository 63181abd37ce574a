"""docs/catamount.md: what the mode is, and for each model what is published, what is ours, and each term between.

Text and tables only; the numbers come in as arguments, from traces that `benchmarks/pages/catamount.py` makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from analysis.catamount import FIXED, QUANTITIES, Term, terms

Numbers = tuple[int, ...]
"""parameters, FLOP, bytes, total footprint."""


@dataclass(frozen=True)
class Model:
    """A model at its base sizes, `batch` among them. rules: what the table of rules gives for a step of PyTorch;
    published: what Catamount's tests assert."""

    name: str
    sizes: Mapping[str, int]
    optimizer: str
    rules: Numbers
    published: Numbers


HEAD = """# Catamount's numbers

`--rules catamount` counts a model as [Catamount](https://github.com/baidu-research/catamount) (Hestness, Ardalani,
Diamos: Beyond human-level accuracy, PPoPP 2019; commit 4591f79) counted TensorFlow graphs, so that its published
numbers can be had from PyTorch. It is a compatibility mode: use the default rules to plan anything.

A number is made of two parts.

* **Rules** (`analysis/catamount/rules.py`): each ATen operation of a training step becomes the nodes that a TensorFlow graph
  of 2018 would have in its place, and these are counted by Catamount's rules (`analysis/catamount/graph_nodes.py`): a sigmoid
  is 4, a tanh 6, a batch normalisation 6N + 3C, a view is a copy, an LSTM layer is a while loop whose weights' gradient
  is added up step by step (`analysis/catamount/while_loops.py`).
* **Terms** (`analysis/catamount/graph_terms.py`): what its graphs do that a step of PyTorch does not, and the other way
  round. A term is a list of nodes (`analysis/catamount/catamount_graphs.csv`, read off the graphs in Catamount's repository;
  `analysis/catamount/resnet_terms.py` for the ResNets); its formulas follow from the rules, and nothing is fitted.

The optimizer is the graph's: `sgd` with momentum for the ResNets, `sgd-plain` for the others. "Not explained"
is published − rules − terms. Tests hold these tables to the code, the totals to traces at base sizes, and at other
sizes to the formulas that Catamount prints.

## Faults of Catamount that are in its numbers

* An L2 loss counts 3 FLOP, whatever its length; it is 2N + 1.
* A mean has no division; comparisons, and arithmetic on whole numbers and on sizes, count as FLOP.
* Padding does not exist: a convolution's output is its input ÷ stride, rounded down. For images whose side is a
  multiple of 32 nothing changes; for others this mode counts PyTorch's sizes, and differs.
* All of a graph is counted, also what nothing asks for: the gradient of the images in the ResNets, perplexity, the
  errors of the best guesses.
* TensorArrays are unknown to it: their reads and writes are 0.
* Every Reshape, Squeeze, Split and Transpose is a full copy, and each gradient of a sum or product a sum over no axis
  and a reshape, so that an LSTM's bytes are mostly these and the sums of its weights' gradients.
* Its minimal footprint depends on the order in which Python pops a set: five runs of wordlm gave 0.97 to 1.67 GB. It is
  not reproduced here. The total footprint is, which is the sum of all that is ever written.
* Two scalars, the step and the learning rate, count as parameters.
* One of speech's constants has four filters whatever their number is; here it has as many as there are.

## All models
"""  # noqa: E501

TITLES = dict(zip(QUANTITIES, ("parameters", "FLOP", "bytes", "total footprint"), strict=True))


def page(models: list[Model]) -> str:
    """The whole document."""
    return "\n".join([HEAD, overview(models), "", *(section(model) for model in models)]).rstrip("\n") + "\n"


def overview(models: list[Model]) -> str:
    """One row for each model and quantity: published, rules, terms, what is left."""
    lines = [
        "| model | quantity | published | rules | terms | not explained |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for model in models:
        added = sums(model)
        for place, quantity in enumerate(QUANTITIES):
            published, own = model.published[place], model.rules[place]
            left = published - own - added[quantity]
            cells = (
                model.name,
                TITLES[quantity],
                f"{published:,}",
                f"{own:,}",
                f"{added[quantity]:,}",
                _share(left, published),
            )
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def section(model: Model) -> str:
    """A model's terms: formula, value at base sizes, and why."""
    sizes = ", ".join(f"{name} {size:,}" for name, size in model.sizes.items())
    lines = [f"## {model.name}", "", f"At {sizes}; optimizer `{model.optimizer}`.{_fixed(model.name)}", ""]
    for name in dict.fromkeys(term.name for term in terms(model.name)):
        own = [term for term in terms(model.name) if term.name == name]
        lines += [f"**{name}**: {own[0].why}.", "", "| quantity | formula | value |", "| --- | --- | ---: |"]
        lines += [f"| {TITLES[t.quantity]} | `{t.formula}` | {value(t, model.sizes):,} |" for t in own]
        lines.append("")
    return "\n".join(lines)


def value(term: Term, sizes: Mapping[str, int]) -> int:
    """A term at these sizes."""
    formula = sympy.sympify(term.formula)
    return int(formula.subs({symbol: sizes[symbol.name] for symbol in formula.free_symbols}))


def sums(model: Model) -> dict[str, int]:
    """Quantity → the sum of the terms."""
    found = dict.fromkeys(QUANTITIES, 0)
    for term in terms(model.name):
        found[term.quantity] += value(term, model.sizes)
    return found


def _fixed(name: str) -> str:
    fixed = " and ".join(f"{size} {what}" for what, size in FIXED.get(name, {}).items())
    return f" Its terms hold for {fixed}." if fixed else ""


def _share(left: int, published: int) -> str:
    return "0" if left == 0 else f"{left:,} ({left / published:+.2%})"
