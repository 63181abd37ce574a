"""Injected fault: a fault in any function of the meter that others call is one warning; the training goes on.

The functions are not listed: they are found while loops run, as frames of the meter's modules that are called from
elsewhere (hooks by torch, callbacks by trainers, contexts and methods by the loop). In each of them a fault is planted
at each line that ran. A new hook without protection makes this red as soon as a loop here runs it.
"""

import ast
import contextlib
import functools
import logging
import sys
import warnings
from pathlib import Path

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.measure.integrations.lightning_nets import lightning_module
from tests.measure.meter.square_layers import WIDTH, meter_of, net, samples
from tests.support.nets.small_steps import Calls
from tests.support.threads import one_thread  # noqa: F401  a fixture for the whole file

ROOT = Path(__file__).parents[3]
OURS = (str(ROOT / "measure" / "meter"), str(ROOT / "flopledger"))
CALLERS_FAULTS = {
    "UtilizationMeter.__init__": "raises for arguments that cannot be right, before the loop",
    "MeterCallback.__init__": "keeps options",
    "MeterSummary.scalars": "reads values that are there",
    "<module>": "an import",
}
"""Function → why a fault in it may reach its caller."""
UNPROTECTED = (
    "out = func(*args, **kwargs)",  # the loop's own operator, which the dispatch mode runs: its errors are the loop's
    "return self._no_summary()  # type: ignore[unreachable]",  # what is called after a fault
)


def _meter(model, **options):
    return meter_of(model, warm_up_steps=1, **options)


def _trained(model, train_step, steps, enter):
    """Weights after some steps. enter: the context of one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for number in range(steps):
        with enter():
            optimizer.zero_grad()
            train_step(number)
            optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def _plain(_folder):
    model = net(2)
    meter = _meter(model, every=4)

    def train_step(number):
        model(samples(2 if number == 9 else 4)).square().mean().backward()
        if number % 4 == 3:
            meter.window()

    weights = _trained(model, train_step, 12, meter.step)
    meter.summary()
    meter.close()
    return weights


def _general(_folder):
    """Calls with two outputs, in a checkpoint, and in two backward passes."""
    model = Calls(lambda m, x: {"a": m.a(x), "b": m.b(x)}, a=net(1), b=net(1))
    meter = _meter(model)

    def train_step(_number):
        out = model(samples())
        (out["a"] + out["b"]).square().mean().backward()
        checkpoint(lambda x: model(x)["a"], samples().requires_grad_(), use_reentrant=False).square().mean().backward()

    return [*_trained(model, train_step, 4, meter.step), meter.summary() and torch.zeros(1)]


def _parts(_folder):
    """A loop that calls the model's parts and the model itself."""
    model = net(2)
    meter = _meter(model, children=True)

    def train_step(number):
        out = model(samples()) if number % 2 else model[1](model[0](samples()))
        out.square().mean().backward()

    return [*_trained(model, train_step, 6, meter.step), meter.summary() and torch.zeros(1)]


def _late(folder):
    """Backward passes after the end of their steps, with several outputs and with one."""
    outs = []
    model = net(2)
    meter = _meter(model, every=2, watch=False)
    for number in range(8):
        with meter.step():
            outs.append(model(samples()))
            if number != 7:
                outs.pop().square().mean().backward()
    outs[0].square().mean().backward()
    with meter.step():
        model(samples()).square().mean().backward()
    general, both = net(1), []
    second = _meter(general, watch=False)
    with second.step():
        both.append(general(input=samples()))
    both[0].square().mean().backward()
    return [each.grad.clone() for each in (*model.parameters(), *general.parameters())]


def _two_calls(_folder):
    model = net(2)
    meter = _meter(model)

    def train_step(_number):
        meter.begin()
        model(samples()).square().mean().backward()
        meter.update()

    weights = _trained(model, train_step, 4, contextlib.nullcontext)
    with pytest.raises(KeyError, match="the loop's own"), meter.step():
        raise KeyError("the loop's own")
    return weights


def _lightning(folder):
    lightning = pytest.importorskip("lightning")
    from flopledger.lightning import UtilizationCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    from lightning.pytorch.loggers import CSVLogger

    module = lightning_module(lambda m, x: m.layer(x), layer=torch.nn.Linear(WIDTH, WIDTH))
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", devices=1, logger=CSVLogger(str(folder)), log_every_n_steps=2,
        callbacks=[UtilizationCallback(energy=False, warm_up_steps=1)],
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(16, WIDTH), batch_size=4))
    return [each.detach().clone() for each in module.parameters()]


def _trainer(folder):
    transformers = pytest.importorskip("transformers")
    from flopledger.transformers import UtilizationCallback

    sizes = {"vocab_size": 32, "n_positions": 8, "n_embd": 16, "n_layer": 1, "n_head": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    data = [{"input_ids": each, "labels": each} for each in torch.randint(0, 32, (16, 8))]
    arguments = transformers.TrainingArguments(
        str(folder), max_steps=4, per_device_train_batch_size=4, logging_steps=2, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    callback = UtilizationCallback(energy=False, warm_up_steps=1)
    transformers.Trainer(model=model, args=arguments, train_dataset=data, callbacks=[callback]).train()
    return [each.detach().clone() for each in model.parameters()]


LOOPS = {
    _plain: {
        "ForwardCalls._on_call", "ModelCall.__call__", "StepObserver.__torch_dispatch__",
        "StepObserver._before_call", "StepObserver._after_call", "MeteredStep.__enter__",
        "MeteredStep.__exit__", "UtilizationMeter.step", "UtilizationMeter.window", "UtilizationMeter.summary",
        "UtilizationMeter.close",
    },
    _general: {"ModelCall.__call__"},
    _parts: {"ForwardCalls._enters"},
    _late: {"ModelCall.__call__"},
    _two_calls: {"UtilizationMeter.begin", "UtilizationMeter.update"},
    _lightning: {"guarded.<locals>.call"},
    _trainer: {"guarded.<locals>.call"},
}  # fmt: skip
"""Loop → some of the functions that something else calls in it."""


class _Tracer:
    """Runs a loop, and sees each line of the functions of the meter that something else calls; plants a fault in one.

    lines: code of such a function → lines that ran. planted: whether the fault was raised.
    """

    def __init__(self, place=None):
        self.lines = {}
        self.planted = False
        self._place = place

    def run(self, loop, folder):
        torch.manual_seed(0)
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            return loop(folder)
        finally:
            sys.settrace(before)

    def _called(self, frame, _event, _argument):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        around = frame.f_back
        while around is not None:
            if around.f_code.co_filename.startswith(OURS):
                return None
            around = around.f_back
        return self._line

    def _line(self, frame, event, _argument):
        if event == "line":
            if self._place == (frame.f_code, frame.f_lineno) and not self.planted:
                self.planted = True
                raise RuntimeError("planted")
            self.lines.setdefault(frame.f_code, set()).add(frame.f_lineno)
        return self._line


@functools.cache
def _may_fail(file):
    """Lines of a module at which a fault can be planted: those of statements that call or calculate something.

    Not those of `try` and of handlers, which nothing can protect, nor where a context of the meter's begins.
    """
    source = Path(file).read_text(encoding="utf-8")
    lines = set()
    handled = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            handled |= set(range(node.lineno, node.end_lineno + 1))
        if not isinstance(node, ast.stmt) or isinstance(node, ast.Try | ast.FunctionDef | ast.ClassDef):
            continue
        last = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno
        head = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
        inside = [each for child in head for each in ast.walk(child)]
        calls = [each for each in inside if isinstance(each, ast.Call)]
        if isinstance(node, ast.With) and all("_guarded" in ast.unparse(each) for each in calls):
            continue
        if isinstance(node, ast.AugAssign | ast.For) or any(
            isinstance(each, ast.Call | ast.Subscript | ast.BinOp) for each in inside
        ):
            lines |= set(range(node.lineno, last + 1))
    own = {number for number, line in enumerate(source.splitlines(), 1) if line.strip() in UNPROTECTED}
    return lines - handled - own


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_fault_at_each_line_that_something_else_calls_is_one_warning(loop, tmp_path):
    found = _Tracer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        unchanged = found.run(loop, tmp_path / "unchanged")
        if loop is not _plain:
            known = _Tracer()
            known.run(_plain, tmp_path / "known")
            found.lines = {code: lines - known.lines.get(code, set()) for code, lines in found.lines.items()}
    assert LOOPS[loop] <= {code.co_qualname for code in found.lines}
    wrong = []
    places = [
        (code, line)
        for code, lines in found.lines.items()
        if code.co_qualname not in CALLERS_FAULTS
        for line in sorted(lines & _may_fail(code.co_filename))
    ]
    for number, place in enumerate(places):
        name = f"{place[0].co_qualname}, line {place[1]}"
        tracer = _Tracer(place)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            try:
                weights = tracer.run(loop, tmp_path / str(number))
            except Exception as fault:  # noqa: BLE001  collected, so that each place is named
                wrong.append(f"{name}: {fault!r} came to the loop")
                continue
        said = [str(each.message) for each in seen if "planted" in str(each.message)]
        if not tracer.planted:
            wrong.append(f"{name}: not reached again")
        elif torch._C._len_torch_dispatch_stack():
            wrong.append(f"{name}: a mode was left on the stack")
            break
        elif len(said) != 1:
            wrong.append(f"{name}: {len(said)} warnings")
        elif not all(torch.equal(*pair) for pair in zip(weights, unchanged, strict=True)):
            wrong.append(f"{name}: other weights")
    assert wrong == []
