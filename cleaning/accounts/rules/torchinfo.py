"""torchinfo by its arithmetic: each leaf module's parameters times what it takes for the positions of its output
(torchinfo/layer_info.py of 1.8.0). A class with "Conv" in its name is a convolution; every other module counts its
parameters once a sample. Forward only."""

from collections.abc import Iterator
from math import prod

from cleaning.accounts.vocabulary.items import Counted, Item, first_tensor, other, product
from cleaning.accounts.vocabulary.module_hooks import NN, fault_of_convolution, missed
from results.records.counts import MODULE, Call, CallRecording, ModuleInfo

UNIT = "mac"

CONVOLUTION = "conv."
RECURRENT = ("rnn.RNN", "rnn.GRU", "rnn.LSTM", "rnn.RNNCell", "rnn.GRUCell", "rnn.LSTMCell")
NORMALIZATION = ("batchnorm.", "normalization.", "instancenorm.")


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass: of every call of a module without children."""
    found: list[Item] = []
    for call in recording.calls:
        if call.what == MODULE and call.serial >= 0 and not recording.modules[call.serial].children:
            found += _leaf(recording.modules[call.serial], call)
    return found, missed(recording, ())


def _leaf(module: ModuleInfo, call: Call) -> Iterator[Item]:
    output = first_tensor(call.output)
    sizes = () if output is None else output.shape
    for name, shape in module.parameters.items():
        numel = prod(shape)
        if name in ("weight", "bias"):
            positions = prod(sizes[:1] + sizes[2:]) if "Conv" in module.class_name else sizes[0]
        elif "weight" in name or "bias" in name:
            positions = prod(sizes[:2])
        else:
            continue
        yield _item(module, call, name, numel * positions)


def _item(module: ModuleInfo, call: Call, name: str, native: int) -> Item:
    where = module.type.removeprefix(NN) if module.type.startswith(NN) else ""
    if where.startswith(NORMALIZATION):
        return other(call, "normalization_counted", native, "normalization")
    if where == "sparse.Embedding":
        return other(call, "embedding_as_product", native, "embedding")
    if "bias" in name and where.startswith((CONVOLUTION, "linear.", *RECURRENT)):
        return other(call, "bias_counted", native, "matmul")
    if where.startswith(RECURRENT):
        return product(call, native, "recurrent_steps", "recurrent")
    if where.startswith(CONVOLUTION):
        return product(call, native, fault_of_convolution(module, call, "transposed_at_output"), "convolution")
    if where in ("linear.Linear", "linear.NonDynamicallyQuantizableLinear"):
        return product(call, native, "positions_ignored")
    if "Conv" in module.class_name and name == "weight":
        return product(call, native, "name_taken_for_convolution")
    return other(call, "parameters_as_operations", native, "elementwise")
