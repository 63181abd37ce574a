"""Definition, law: what a network of known structure calls, one by one, and torch as it was afterwards."""

import copy
import warnings

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch import nn

from measure.counters.model_calls import WATCHED, plain_calls, record
from results.errors import Unavailable
from results.records.calls import FUNCTION, MODULE, Sized, tensors
from tests.support.account_nets.account_nets_layers import Lambda
from tests.support.nets.counted_nets import Broken

torch.fx.wrap("doubled")


def doubled(value):
    return value + value


def recorded(model, *inputs, plain=False):
    return record(model, inputs, plain=plain)


def heard(recording, what=FUNCTION):
    return [call.name for call in recording.calls if call.what == what]


def torch_as_it_is():
    """Every function that may be replaced, and everything else that is found beside it."""
    places = {id(place): place for _, place, _ in WATCHED}
    return {(key, name): value for key, place in places.items() for name, value in vars(place).items()}


class TestModules:
    def test_each_call_has_its_module_its_caller_and_its_sizes(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
        recording = recorded(model, torch.ones(5, 4))
        modules = [call for call in recording.calls if call.what == MODULE]
        assert [(call.path, call.serial) for call in modules] == [("", 0), ("0", 1), ("1", 2), ("1.0", 3), ("1.1", 4)]
        assert [call.name.rpartition(".")[2] for call in modules] == [
            "Sequential", "Linear", "Sequential", "ReLU", "Linear",
        ]  # fmt: skip
        around = {call.path: [above.path for above in recording.around(call)] for call in modules}
        assert around == {"": [], "0": [""], "1": [""], "1.0": ["1", ""], "1.1": ["1", ""]}
        assert [call.arguments for call in modules if call.path == "1.1"] == [(Sized((5, 3)),)]
        assert [call.output for call in modules if call.path == ""] == [Sized((5, 2))]
        assert (recording.batch, recording.parameters, recording.note) == (5, 4 * 3 + 3 + 3 * 2 + 2, "")

    def test_modules_are_described_once_with_what_rules_ask_for(self):
        layer = nn.Conv2d(3, 4, 3, bias=False)
        first, second, third = recorded(nn.Sequential(layer, nn.BatchNorm2d(4)), torch.ones(1, 3, 5, 5)).modules
        assert first.children == (("0", 1), ("1", 2))
        assert (second.type, second.class_name) == ("torch.nn.modules.conv.Conv2d", "Conv2d")
        assert "torch.nn.modules.conv._ConvNd" in second.bases
        assert second.parameters == {"weight": (4, 3, 3, 3)}
        assert (second.settings["kernel_size"], second.settings["groups"]) == ((3, 3), 1)
        assert third.settings["affine"] is True
        assert third.parameters == {"weight": (4,), "bias": (4,)}


class TestFunctions:
    def test_a_function_belongs_to_the_module_whose_forward_called_it(self):
        model = Lambda(lambda m, x: F.relu(m.part(x)), part=nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
        recording = recorded(model, torch.ones(2, 4))
        functions = [(call.name, call.path) for call in recording.calls if call.what == FUNCTION]
        assert functions == [("F.linear", "part.0"), ("F.relu", "part.1"), ("F.relu", "")]
        linear = next(call for call in recording.calls if call.name == "F.linear")
        assert list(tensors(linear.arguments)) == [Sized((2, 4)), Sized((3, 4)), Sized((3,))]

    def test_arithmetic_of_tensors_is_heard_by_the_method_it_is(self):
        def run(m, x):
            value = m.part(x)
            value += value
            value = 2 + (value + 1) * 3 @ value.mT
            return torch.add(value, other=value).add_(1).mul_(2)

        recording = recorded(Lambda(run, part=nn.Linear(4, 3)), torch.ones(2, 4))
        assert heard(recording) == [
            "F.linear", "Tensor.__iadd__", "Tensor.__add__", "Tensor.__mul__", "Tensor.__matmul__", "Tensor.__radd__",
            "torch.add", "Tensor.add_", "Tensor.mul_",
        ]  # fmt: skip
        added = next(call for call in recording.calls if call.name == "torch.add")
        assert (added.arguments, added.keywords) == ((Sized((2, 2)),), {"other": Sized((2, 2))})


class TestOperations:
    def test_the_range_of_a_call_holds_its_operations_and_no_others(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
        recording = recorded(model, torch.ones(5, 4))
        within = {
            call.path: [op.name for op in recording.operations[call.first : call.last]]
            for call in recording.calls
            if call.what == MODULE
        }
        products = [name for name in within["0"] if name == "aten.addmm"]
        assert len(products) == 1
        assert within["1"][0] == "aten.relu"  # and a detach, of which gradients know nothing
        assert within[""] == within["0"] + within["1"] + within["2"]
        assert {op.phase for op in recording.operations[: len(within[""])]} == {"forward"}
        linear, module = [call for call in recording.calls if call.path == "0"]
        assert (linear.first, linear.last) == (module.first, module.last)


class TestLeftAsFound:
    def test_torch_and_the_model_are_as_they_were(self):
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Dropout()).train()
        model[0].weight.grad = torch.ones(3, 4)
        weights, before = copy.deepcopy(model.state_dict()), torch_as_it_is()
        recorded(model, torch.ones(5, 4), plain=True)
        assert torch_as_it_is() == before
        assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
        assert torch.equal(model[0].weight.grad, torch.ones(3, 4))
        assert model[0].bias.grad is None
        assert all(module.training for module in model.modules())
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
        assert not torch.nn.modules.module._global_forward_hooks
        assert not torch.nn.modules.module._global_forward_pre_hooks

    @pytest.mark.parametrize("plain", [False, True])
    def test_an_exception_in_the_model_comes_out_and_leaves_nothing(self, plain):
        before = torch_as_it_is()
        with pytest.raises(RuntimeError, match="no such thing"):
            recorded(Broken(), torch.ones(2, 4), plain=plain)
        assert torch_as_it_is() == before
        assert not torch.nn.modules.module._global_forward_hooks


class TestRealTensors:
    def test_where_data_decide_sizes_real_tensors_run_and_it_says_so(self):
        def run(m, x):
            value = m.part(x)
            return value[: int(x.sum())]

        recording = recorded(Lambda(run, part=nn.Linear(4, 3)), torch.ones(2, 4))
        assert recording.note.startswith("recorded on real tensors: ")
        assert "\n" not in recording.note
        assert heard(recording) == ["F.linear"]
        assert [op.name for op in recording.operations if op.name == "aten.addmm"] == ["aten.addmm"]

    def test_a_scripted_module_is_refused_by_its_name(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's: torch.jit.script is old
            scripted = torch.jit.script(nn.Linear(4, 3))
        with pytest.raises(Unavailable, match="part is scripted"):
            recorded(Lambda(lambda m, x: m.part(x), part=scripted), torch.ones(2, 4))


class TestUnwatched:
    def test_sums_and_products_of_elements_as_they_run_alone(self):
        """A linear layer's bias is added inside of addmm; gradients that meet are added in place: neither is a call
        of add. `a + 1` and `a * a` are."""
        model = Lambda(lambda m, x: (a := m.part(x)) * a + 1, part=nn.Linear(4, 3))
        found = plain_calls(model, (torch.ones(2, 4),))
        forward = [(call.name, call.path, call.shapes[0]) for call in found if call.phase == "forward"]
        assert forward == [("aten.mul", "", (2, 3)), ("aten.add", "", (2, 3))]
        backward = [call.name for call in found if call.phase == "backward"]
        assert backward == ["aten.mul", "aten.mul"]  # the gradient times a, twice; both meet in place

    def test_what_is_calculated_again_is_told_from_the_backward_pass(self):
        """The block of 4→3 and 3→3 is calculated again; the last product is cut short, and was called."""
        block = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3))
        model = Lambda(lambda m, x: torch.utils.checkpoint.checkpoint(m.block, m.stem(x), use_reentrant=False).sum(),
                       stem=nn.Linear(4, 4), block=block)  # fmt: skip
        found = plain_calls(model, (torch.ones(2, 4),))
        again = [(call.name, call.path, call.shapes[1:]) for call in found if call.phase == "recompute"]
        assert [(name, path) for name, path, _ in again] == [("aten.addmm", "block.0"), ("aten.addmm", "block.2")]
        assert again[0][2][:2] == ((2, 4), (4, 3))
        assert "aten.mm" not in [call.name for call in found]  # those of the backward pass the dispatcher tells
