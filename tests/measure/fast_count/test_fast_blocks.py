"""When the fast count may take a block for another: what code can change, copies, other threads."""

from __future__ import annotations

import copy
import dis
import inspect
import sys
import threading
import types

import torch
import torch.nn.functional as F
import torchvision.models.feature_extraction
from torch import nn

from measure.fast_count.block_likeness import Likeness
from measure.fast_count.fast_count import fast_count
from measure.fast_count.module_purity import FIXED, NOT_FIXED, mutates_no_module
from tests.support.nets.fast_nets import Made, agree


def test_what_torch_and_torchvision_change_outside_of_building_is_known():
    """Why likenesses of their models are taken once: no code of theirs sets an attribute of a module, but for this."""
    found = set()
    for kind in _classes(nn.Module):
        if kind.__module__.startswith(FIXED) and not kind.__module__.startswith(NOT_FIXED):
            for name, function in vars(kind).items():
                if isinstance(function, types.FunctionType) and _sets_attributes(function.__code__):
                    found.add(f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}.{name}")
    called_when_built = {"__init__", "__setstate__", "_init_flat_weights", "_make_layer", "initialize_parameters"}
    others = {name for name in found if name.rpartition(".")[2] not in called_when_built}
    assert others <= {
        "container.ModuleList.__delitem__",
        "container.ParameterList.append",
        "container.Sequential.__delitem__",
        "feature_extraction.DualGraphModule.__deepcopy__",
        "feature_extraction.DualGraphModule.train",
        "mnasnet.MNASNet._load_from_state_dict",
        "rnn.RNNBase._apply",
        "rnn.RNNBase._replicate_for_data_parallel",
        "swin_transformer.ShiftedWindowAttention.define_relative_position_bias_table",
        "swin_transformer.ShiftedWindowAttention3d.define_relative_position_bias_table",
    }
    assert len(found) > 100  # they were looked at


def test_torch_and_torchvision_draw_from_no_generator_but_torchs():
    """Why those of Python and NumPy are not looked at for their models: nothing of them is within reach of the code.

    maxvit has NumPy itself, for numbers between two, and names no generator of it.
    """
    kinds = [kind for kind in _classes(nn.Module) if mutates_no_module(kind)]
    names = {part.__module__ for kind in kinds for part in kind.__mro__ if part is not object}
    drawing = set()
    for name in names:
        for held, value in vars(sys.modules[name]).items():
            home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
            if home.partition(".")[0] in ("random", "numpy", "secrets", "os"):
                drawing.add((name, held))
    assert len(names) > 50
    assert drawing <= {("torchvision.models.maxvit", "np")}
    assert "random" not in inspect.getsource(torchvision.models.maxvit)


def _classes(kind):
    for below in kind.__subclasses__():
        yield below
        yield from _classes(below)


def _sets_attributes(code):
    names = {step.opname for step in dis.get_instructions(code)}
    inside = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return bool(names & {"STORE_ATTR", "DELETE_ATTR"}) or any(map(_sets_attributes, inside))


def test_a_block_that_its_parent_changes_before_it_runs_is_seen():
    """The second and third run on another number: three products, not two and a replay."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.times = nn.Linear(4, 4), 1

        def forward(self, x):
            for _ in range(self.times):
                x = self.linear(x)
            return x

    def forward(m, x):
        for number, block in enumerate(m.blocks):
            block.times = number + 1
            x = block(x)
        return x

    model = Made(forward, blocks=nn.ModuleList(Scaled() for _ in range(3)))
    found = agree(model, (torch.randn(3, 4),))
    assert (found.forward_flop, found.replayed) == (6 * 96, 0)


def test_a_function_of_ones_own_in_a_layer_of_torch_may_change_its_blocks():
    layers = [nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, activation=F.relu) for _ in range(2)]
    assert Likeness(nn.Sequential(*layers)).fixed
    layers[0].activation = lambda x: x.relu()
    assert not Likeness(nn.Sequential(*layers)).fixed
    layers[0].activation = F.relu
    layers[0].register_forward_hook(lambda *_: None)
    assert not Likeness(nn.Sequential(*layers)).fixed


def test_a_copy_of_a_block_made_while_it_is_counted_is_a_block_for_itself():
    """And one that outlives the count runs as it would have."""
    kept = []

    def forward(m, x):
        twin = copy.deepcopy(m.blocks[0])
        twin[0] = nn.Linear(4, 2, device=x.device)
        kept.append(twin)
        return twin(m.blocks[2](m.blocks[1](m.blocks[0](x))))

    model = Made(forward, blocks=nn.ModuleList(nn.Sequential(nn.Linear(4, 4)) for _ in range(3)))
    found = fast_count(model, (torch.randn(3, 4),))
    assert not found.executed, found.notes
    assert (found.forward_flop, found.replayed) == (3 * 96 + 48, 1)
    assert found.backward_flop == 96 + 4 * 96 + 2 * 48  # the input needs no gradient
    with torch.device("meta"):
        assert kept[-1](torch.empty(3, 4)).shape == (3, 2)


def test_other_threads_run_the_blocks_themselves():
    shapes, model = [], nn.Sequential(*(nn.Sequential(nn.Linear(4, 4, device="meta")) for _ in range(3)))

    class Asking(nn.Module):
        def forward(self, x):
            other = threading.Thread(target=lambda: shapes.append(model[0](torch.empty(7, 4, device="meta")).shape))
            other.start()
            other.join()
            return x

    found = fast_count(nn.Sequential(Asking(), *model), (torch.empty(3, 4),))
    assert set(shapes) == {(7, 4)}
    assert (found.forward_flop, found.at_least_flop["forward"]) == (None, 3 * 96)  # nobody sees what a thread does
    assert "threading.Thread" in found.not_understood
    assert "forward" not in vars(model[0])
