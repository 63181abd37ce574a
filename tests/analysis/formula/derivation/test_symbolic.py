"""Definition, law, injected fault: formulas of a step by hand and against whole-number counts; wrong ones refused."""

import random
from dataclasses import replace

import pytest
import sympy

from analysis.formula.derive import expression, formulas, totals
from analysis.formula.interpolate import value_of
from analysis.formula.sampling import Axis, SizeSample, Unfitted
from analysis.formula.symbolic_table import Convention
from analysis.operators import registry
from results.records.counts import Operation, Storage
from runners.formula_points import NotBuilt, SizedModel, axes, sampler
from runners.workers.any_model import get

b, w, d, image, classes = sympy.symbols("batch width depth image classes", integer=True, positive=True)

NETS = '''
import torch
from torch import nn

class Recurrent(nn.Module):
    """A cell of `depth` layers over `seq` steps, unrolled by a loop."""
    def __init__(self, hidden, depth, seq):
        super().__init__()
        self.seq, self.read = seq, nn.Linear(hidden, hidden, bias=False)
        self.layers = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(depth))
    def forward(self, x):
        state = torch.zeros_like(x[:, 0])
        for step in range(self.seq):
            state = state + self.read(x[:, step])
            for layer in self.layers:
                state = torch.tanh(layer(state))
        return state

def recurrent(hidden=8, depth=3, seq=4):
    return Recurrent(hidden, depth, seq), (torch.randn(1, seq, hidden),)

class Heads(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.project, self.norm = nn.Linear(width, 3 * width), nn.LayerNorm(width)
    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.project(self.norm(x)).view(n, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        return nn.functional.scaled_dot_product_attention(q, k, v)

def heads(width=64, seq=9):
    return Heads(width), (torch.randn(1, seq, width),)

class Grown(nn.Module):
    """Something whose cost is no polynomial, nor a rounded one."""
    def __init__(self, steps):
        super().__init__()
        self.steps, self.weight = steps, nn.Linear(4, 4)
    def forward(self, x):
        for _ in range(1 + self.steps ** 2 % 7):
            x = self.weight(x)
        return x

def grown(steps=3):
    return Grown(steps), (torch.randn(1, 4),)

def refuses(width=8):
    if width != 8:
        raise RuntimeError("only eight")
    return nn.Linear(8, 8), (torch.randn(1, 8),)
'''


@pytest.fixture(scope="module")
def nets(tmp_path_factory):
    path = tmp_path_factory.mktemp("nets") / "nets.py"
    path.write_text(NETS)
    return path


def subject(model, **settings):
    workload = get(str(model))
    return SizedModel(str(model), workload.hyper, 2, **settings)


def derived(model, symbols=None, **settings):
    asked = subject(model, **settings)
    looked_at = sampler(asked)
    where = axes(asked, symbols or list(asked.symbols), looked_at)
    return formulas(looked_at, where), looked_at


def exact(sample):
    """The counts of a table of whole numbers, by the rules themselves."""
    cost = registry.total(sample.operations)
    return {
        "parameters": sum(sympy.prod(shape) for _, shape in sample.parameters),
        "model_flop": cost.model_flop,
        "all_flop": cost.all_flop,
        "bytes_accessed": cost.moved_bytes,
        "total_footprint_bytes": sum(storage.nbytes for storage in sample.storages),
    }


def at(formula, point):
    return formula.subs({sympy.Symbol(name, integer=True, positive=True): value for name, value in point.items()})


def agree(found, looked_at, points):
    whole = totals(found)
    for point in points:
        for quantity, count in exact(looked_at(point)).items():
            assert at(whole[quantity], point) == count, (quantity, point)


def test_a_chain_of_products_has_the_formula_derived_by_hand():
    """depth layers of width × width: 2·b·w² each forward, twice that backward but once for the first layer's weight."""
    found, looked_at = derived("synthetic_matmul")
    whole = totals(found)
    assert sympy.expand(whole["model_flop"] - (2 * b * d * w**2 + (2 * d - 1) * 2 * b * w**2)) == 0
    assert sympy.expand(whole["parameters"] - d * w**2) == 0
    assert sympy.expand(whole["io_bytes"] - 8 * b * w) == 0  # a batch and a target of float32
    assert [axis.symbol for axis in found.structural] == ["depth"]
    agree(found, looked_at, [{"batch": 9, "width": 12, "depth": 6}, {"batch": 2, "width": 31, "depth": 2}])


@pytest.mark.parametrize("optimizer", ["sgd", "adamw", "sgd-plain"])
def test_every_optimizer_has_its_state_before_the_step(optimizer):
    found, looked_at = derived("synthetic_matmul", ["batch", "width"], optimizer=optimizer)
    state = {"sgd": 4, "adamw": 8, "sgd-plain": 0}[optimizer] * 4 * w**2  # depth is 4: bytes of momentum, or of both
    state += {"adamw": 4 * 4}.get(optimizer, 0)  # and a step count of each weight
    states = [form for (place, of), form in found.counts.items() if place == "optimizer_state" and of == "role_bytes"]
    assert sympy.expand(sum(map(expression, states)) - state) == 0
    agree(found, looked_at, [{"batch": 5, "width": 40}])


def test_loops_that_a_symbol_unrolls_are_interpolated_and_checked(nets):
    """Each step has one product that reads and depth that follow, 2·b·h² each, and in backward twice that, less the
    gradient of each step's input, which needs none."""
    found, looked_at = derived(f"{nets}:recurrent")
    h, depth, seq = sympy.symbols("hidden depth seq", integer=True, positive=True)
    forward = 2 * b * h**2 * seq * (1 + depth)
    assert sympy.expand(totals(found)["model_flop"] - (3 * forward - 2 * b * h**2 * seq)) == 0
    assert {axis.symbol for axis in found.structural} == {"depth", "seq"}
    agree(found, looked_at, [{"batch": 4, "hidden": 21, "depth": 5, "seq": 7}])


def test_a_width_goes_in_steps_that_the_heads_allow_and_attributes_are_sizes_too(nets):
    found, looked_at = derived(f"{nets}:heads")
    assert {axis.symbol: axis.step for axis in found.axes} == {"batch": 1, "width": 4, "seq": 1}
    agree(found, looked_at, [{"batch": 5, "width": 24, "seq": 31}])


# --- tables made by hand ---------------------------------------------------------------------------------------------


def product(point, k=4, attributes=None):
    """One mm of (n × k) and (k × n), as a table."""
    n = point["n"]
    row = Operation(
        0, "aten.mm", "matmul", "forward", "", None, None, ("self", "mat2"), ((n, k), (k, n)), ("float32", "float32"),
        ((n, n),), ("float32",), attributes or {}, (0, 1), (2,),
    )  # fmt: skip
    storages = tuple(
        Storage(i, 4 * size, "temporary", -1 if i < 2 else 0, None) for i, size in enumerate((n * k, n * k, n * n))
    )
    return SizeSample(point, (row,), storages, (("weight", (n, k)),))


def test_a_size_that_breaks_its_law_further_out_is_not_told():
    """Sizes follow one law up to 40 and another beyond: the points that check come to the second."""

    def broken(point):
        return product(point, k=4 if point["n"] < 12 else 5)

    with pytest.raises(Unfitted, match=r"aten\.mm in the model|no formula"):
        formulas(broken, [Axis("n", 3)])


def test_a_rule_that_decides_by_a_size_is_found_out():
    """A reader that compares sizes gives whatever polynomials compare as: its count differs from that of numbers."""
    rule = registry.TABLE["aten.mm"]
    odd = replace(
        rule, reader=lambda operation: rule.reader(operation) * (1 if operation.output_shapes[0][0] == 31 else 2)
    )
    at_31 = formulas(product, [Axis("n", 3)], Convention({"aten.mm": odd}))
    point = {"n": 30}
    assert value_of(at_31.total("model_flop"), point) == 2 * registry.cost(product(point).operations[0]).model_flop
    biased = replace(
        rule,
        reader=lambda operation: rule.reader(operation) * (1 if isinstance(operation.output_shapes[0][0], int) else 2),
    )
    with pytest.raises(Unfitted, match="the formula gives"):
        formulas(product, [Axis("n", 3)], Convention({"aten.mm": biased}))


def layered(point, k=lambda point: 4):
    """layers times the mm of (n × k) and (k × n)."""
    row = product(point, k(point)).operations[0]
    rows = tuple(replace(row, index=i, module=f"layers.{i}") for i in range(point["layers"]))
    return replace(product(point, k(point)), operations=rows)


LAYERS = [Axis("n", 3), Axis("layers", 2)]


def test_a_size_that_only_more_layers_have_otherwise_is_not_told():
    """k is 4, and 5 where three layers or more are wider than where the first of them were looked at."""
    narrow = formulas(layered, LAYERS).levels[1][1].samples[1].point["n"]
    with pytest.raises(Unfitted):
        formulas(lambda point: layered(point, lambda at: 5 if at["layers"] > 2 and at["n"] > narrow else 4), LAYERS)


def test_a_model_that_takes_one_size_alone_says_so(nets):
    with pytest.raises(NotBuilt, match="width cannot be other than 8"):
        derived(f"{nets}:refuses", ["batch", "width"])


def test_what_is_no_polynomial_is_refused(nets):
    with pytest.raises(Unfitted, match="no formula in steps"):
        derived(f"{nets}:grown", ["batch", "steps"])


def test_an_image_that_strides_divide_keeps_its_rounding():
    """resnet18 by its own architecture: a 7 × 7 at stride 2 and stages at 4, 8, 16, 32, all padded to round up."""
    found, looked_at = derived("resnet18", ["batch", "image", "classes"])
    side = {by: sympy.ceiling(image / by) for by in (2, 4, 8, 16, 32)}
    forward = 7 * 7 * 3 * 64 * side[2] ** 2 + 4 * 9 * 64 * 64 * side[4] ** 2
    for by, width in ((8, 128), (16, 256), (32, 512)):
        forward += (9 * width * width // 2 + 3 * 9 * width * width + width * width // 2) * side[by] ** 2
    forward += 512 * classes
    first = 7 * 7 * 3 * 64 * side[2] ** 2  # the image needs no gradient
    assert sympy.expand(totals(found)["model_flop"] - b * (2 * 3 * forward - 2 * first)) == 0
    assert sympy.expand(totals(found)["parameters"] - (11_176_512 + 513 * classes)) == 0  # 11,689,512 for 1000
    numbers = random.Random(7)
    points = [
        {"batch": numbers.randint(2, 40), "image": size, "classes": numbers.randint(2, 99)} for size in (33, 71, 224)
    ]
    agree(found, looked_at, points)
