"""Definition, injected fault: functions of a user's file as workloads, what they may return, and each way to fail."""

import textwrap

import pytest
import torch

from measure.counters.adapters.dispatched import flopledger
from workloads.any_model import get
from workloads.step import OPTIMIZERS, TrainingStep

CPU = torch.device("cpu")

NET = """
    import torch
    from torch import nn
    from workloads.catalogue.base import Batch, Workload

    class Net(nn.Module):
        def __init__(self, width=8, depth=2):
            super().__init__()
            self.layers = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(depth)))
        def forward(self, tokens, mask=None, lengths=None):
            tokens = self.layers(tokens)
            return tokens if lengths is None else tokens * lengths[:, None]

    def build(width: int = 8, depth: int = 2):
        return Net(width, depth)

    def example():
        return Net(), torch.randn(3, 8)

    def named():
        return Net(), {"tokens": torch.randn(3, 8), "lengths": torch.tensor([1, 2, 3])}

    def mixed():
        return Net(), (torch.randn(3, 8), {"lengths": torch.tensor([1, 2, 3])})

    def made():
        return Net(), lambda size, device, generator: {"tokens": torch.randn(size, 8, generator=generator)}

    def beside():
        return Net()

    def beside_batch(size, device, generator):
        return Batch((torch.randn(size, 8, generator=generator),), torch.ones(size, 8))

    def beside_loss(output, target):
        return ((output - target) ** 2).sum()

    def whole():
        return Workload("inner", "synthetic", {"width": 8}, lambda width: Net(width),
                        lambda hyper, size, device, generator: Batch((torch.randn(size, hyper["width"]),), None),
                        lambda output, target: output.sum(), lambda hyper, size: size, "row", "here")

    def batches(size, device, generator):
        return torch.randn(size, 8, generator=generator)

    def number(): return 3
    def three(): return Net(), 1, 2
    def wrong(): return Net(), 3
    def raises(): raise RuntimeError("no such\\nthing")
    def needs(config): return Net()
    def needs_batch(): ...
    def bare(): return Net()
    def unmade(): return Net(), lambda size: size
    text = "no function"
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(textwrap.dedent(NET))
    return path


def first_batch(workload, size):
    return workload.batch(workload.hyper, size, CPU, torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("function", "options", "shapes"),
    [
        ("build", {"input": "8"}, [(5, 8)]),
        ("build", {"input": "tokens=8,lengths=:int64:9"}, [(5, 8), None, (5,)]),
        ("Net", {"input": "8"}, [(5, 8)]),
        ("example", {}, [(5, 8)]),
        ("named", {}, [(5, 8), None, (5,)]),
        ("mixed", {}, [(5, 8), None, (5,)]),
        ("made", {}, [(5, 8)]),
        ("beside", {}, [(5, 8)]),
        ("whole", {}, [(5, 8)]),
        ("bare", {"batch": "net.py:batches"}, [(5, 8)]),
        ("example", {"batch": "net.py:batches"}, [(5, 8)]),
    ],
)
def test_everything_that_a_function_may_return_trains_and_is_counted(net, monkeypatch, function, options, shapes):
    """Two layers of 8 × 8 at a batch of 5: 2·5·64·2 FLOP forward; backward as much for the weights and, but for the
    first layer, for the inputs: 3 products to 2."""
    monkeypatch.chdir(net.parent)
    workload = get(f"net.py:{function}", **options)
    model = workload.build(**workload.hyper)
    batch = first_batch(workload, 5)
    assert model.training
    assert [None if given is None else tuple(given.shape) for given in batch.inputs] == shapes
    before = [parameter.detach().clone() for parameter in model.parameters()]
    TrainingStep(model, workload.loss, OPTIMIZERS["sgd"](model.parameters()), [batch], "cpu")()
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))
    totals = {
        row.phase: row.flop
        for row in flopledger(model, batch.inputs, workload="net", batch_size=5)
        if (row.scope, row.operator) == ("total", "")
    }
    assert totals == {"forward": 2 * 2 * 5 * 64, "backward": 3 * 2 * 5 * 64}
    assert (workload.name, workload.items(workload.hyper, 5)) == (f"net.py:{function}", 5)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("number", "a torch.nn.Module, (module, inputs), (module, function that makes inputs) or a Workload; got"),
        ("number", "got a int"),
        ("three", "got (Net, int, int)"),
        ("wrong", "expected inputs: a tensor, a dict of names, or a tuple of inputs; got int"),
        ("raises", "net.py:raises raised RuntimeError: no such thing"),
        ("needs", "expected a function that needs no arguments; it needs 'config'"),
        ("bare", "gives no inputs: add --input 3x224x224, or return (module, inputs), or define bare_batch"),
        ("text", "expected a function, got a str"),
        ("exampel", "has no 'exampel'; nearest: example"),
    ],
)
def test_mistakes_are_one_line(net, function, said):
    with pytest.raises(ValueError, match=r".") as fault:
        get(f"{net}:{function}")
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_mistakes_of_a_maker_of_batches(net):
    with pytest.raises(ValueError, match=r"unmade: <lambda>\(size, device, generator\) raised TypeError"):
        first_batch(get(f"{net}:unmade"), 2)
    with pytest.raises(ValueError, match="has no 'batchez'; nearest: batches"):
        get(f"{net}:bare", batch=f"{net}:batchez")
    with pytest.raises(ValueError, match="a function that makes batches goes with one that makes the model"):
        get("resnet18", batch=f"{net}:batches")
    with pytest.raises(ValueError, match="forward takes no 'token'; it takes tokens, mask, lengths; nearest: tokens"):
        first_batch(get(f"{net}:build", input="token=8"), 2)


def test_a_file_runs_once_for_each_content_unless_it_holds_a_model(tmp_path):
    """An operator that is defined anew leaves what called the old one with a schema that torch has deleted."""
    path, runs = tmp_path / "counted.py", tmp_path / "runs"
    body = f"with open({str(runs)!r}, 'a') as out: out.write('.')\nfrom torch import nn\n"
    body += "def build(): return nn.Linear(8, 8)\n"
    for content, expected in ((body, 1), (body, 1), (body + "# changed", 2), (body + "held = build()", 3)):
        path.write_text(content)
        get(f"{path}:build", input="8")
        assert len(runs.read_text()) == expected
    get(f"{path}:build", input="8")
    assert len(runs.read_text()) == 4


def test_its_own_loss_is_used(net):
    assert get(f"{net}:beside").loss(torch.zeros(2, 3), torch.ones(2, 3)) == 6
    assert get(f"{net}:example").loss(torch.ones(2, 3, requires_grad=True), None) == 1
