"""Known answer, definition: every FLOP by which an installed counter differs on small networks has a cause.

The counters are the installed ones, each in a process of its own; the rules see recordings and no total.
"""

import contextlib
import dataclasses
import functools
import importlib
import io
import warnings

import pytest
import torch
from torch import nn

from analysis.counters import COUNTERS, CounterEntry
from cleaning.accounts.dispatched import flop_counter_mode
from cleaning.accounts.explain import reconcile
from cleaning.accounts.items import CAUSES
from cleaning.accounts.wrapped import elementwise
from measure.counters import isolation
from measure.counters.isolation import count_isolated
from measure.counters.model_calls import record
from results.records.calls import Call, Sized
from results.records.counts import WHOLE, FlopCount
from tests.support.account_nets import account_nets
from workloads.catalogue.base import Batch, Workload, mean_loss

BATCHES = (1, 2)

NEEDS_2_15 = {"scores_computed_again"} if torch.__version__ < (2, 15) else set()
"""Causes that the counters of an older torch do not show on a CPU."""


TRAINED = ("Auxiliary", "EvaluatedOnly", "frozen", "small", "checkpointed")
"""Nets whose training step is recorded, too; of the others, exact is their evaluation."""


@functools.cache
def recorded(name, size):
    """What a net calls at a batch size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's of complex numbers cast, and of old names: nothing of ours
        found = record(account_nets.get(name).build(), account_nets.inputs_of(name, size))
        if name not in TRAINED:
            return found
        from runners.sweep.cell import training

        return dataclasses.replace(found, training=training(account_nets.get(name), size))


@functools.cache
def counted(counter):
    """Rows of a counter by net and batch size; a net that it cannot count is one row with the reason."""
    registry = {counter: CounterEntry("tests.cleaning.accounts.test_account_rules:count_all")}
    rows = count_isolated(
        counter,
        counter,
        {},
        BATCHES,
        600,
        factory="tests.cleaning.accounts.test_account_rules:named",
        registry=registry,
    )
    found = {}
    for row in rows:
        found.setdefault((row.workload, row.batch_size), []).append(row)
    return found


def named(counter):
    """A workload that holds nothing but the counter's name, for `count_all`."""
    return Workload(
        name=counter,
        task="general",
        hyper={},
        build=nn.Identity,
        batch=lambda *_: Batch((torch.zeros(1),), None),
        loss=mean_loss,
        items=lambda *_: 1,
        item="sample",
        source=__name__,
    )


def count_all(model, inputs, *, workload, batch_size):
    """The adapter of the counter that `workload` names, on all nets."""
    target, _, function = COUNTERS[workload].adapter.partition(":")
    adapter = getattr(importlib.import_module(target), function)
    return [row for name in account_nets.NETS for row in _rows(adapter, workload, name, batch_size)]


def _rows(adapter, counter, name, size):
    model, inputs = account_nets.get(name).build().eval(), account_nets.inputs_of(name, size)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            rows = adapter(model, inputs, workload=name, batch_size=size)
    except Exception as fault:  # noqa: BLE001  as in measure.counters.isolation
        reason = f"{type(fault).__name__}: {fault}"
        return [
            FlopCount(counter=counter, workload=name, batch_size=size, phase="forward", status="invalid", reason=reason)
        ]
    return [row for row in rows if row.scope == WHOLE]


UNTRACEABLE = (
    "torch_functions sampling warped subclasses deformable modulated encoder packed in_place data_decides "
    "einops_contraction"
)

CRASHES = {
    "fvcore": "vectors checkpointed_with_reentry checkpointed_twice",
    "ptflops": "packed module_keywords",
    "pthflops": f"{UNTRACEABLE} attention_with_weights outside vectors named_convolution timm_attention vision_block "
    "module_keywords several_inputs line_without_batch",
    "deepspeed": "packed without_batch line_without_batch",
    "calflops": "packed without_batch line_without_batch",
    "thop": "module_keywords",
}
"""Counter → the nets that it gives no number for: torch.fx cannot trace what asks a tensor for its length or value,
pthflops takes a tuple for a count, fvcore has no rule for a vector as an operand, packed sequences have no shape,
DeepSpeed and calflops ask that the input of a convolution has a batch."""

CRASHES_ONCE = {"calflops": {("resizing_by_each_side", 1)}}
"""calflops compares a factor's length with the batch: two factors go with a batch of two, and no other."""


@pytest.fixture(autouse=True, scope="module")
def server():
    isolation.prepare()


@functools.cache
def accounts(counter):
    """(accounts, causes) of a counter over all nets and batches."""
    found, causes = [], []
    for (name, size), rows in counted(counter).items():
        mine, why = reconcile(name, size, recorded(name, size), rows)
        found += mine
        causes += why
    return found, causes


@pytest.mark.parametrize("counter", COUNTERS)
def test_every_flop_of_difference_has_a_cause(counter):
    found, _ = accounts(counter)
    left = {(a.model, a.batch_size, a.phase): a.unexplained_flop for a in found if a.unexplained_flop}
    assert left == {}
    failed = {(a.model, a.batch_size) for a in found if a.status != "ok"}
    crashes = {(name, size) for name in CRASHES.get(counter, "").split() for size in BATCHES}
    assert failed == crashes | CRASHES_ONCE.get(counter, set())
    assert {(a.model, a.batch_size) for a in found} == {(name, size) for name in account_nets.NETS for size in BATCHES}
    assert all(a.unexplained_flop == 0 for a in found if a.status == "ok")


def test_the_vocabulary_is_that_of_the_rules():
    """Each cause is shown by some net, and no rule gives another."""
    assert {cause.cause for counter in COUNTERS for cause in accounts(counter)[1]} == set(CAUSES) - NEEDS_2_15


def causes_of(counter, name, size=1, phase="forward"):
    """Cause → what it adds, of one net."""
    sums = {}
    for cause in accounts(counter)[1]:
        if (cause.model, cause.batch_size, cause.phase) == (name, size, phase):
            sums[cause.cause] = sums.get(cause.cause, 0) + cause.flop
    return sums


BY_HAND = [
    # 12 × 12 on 5 tokens, 720 a call, two calls; hooked twice and added up twice: four times, three too many.
    ("thop", "shared", 1, "forward", "module_used_twice", 3 * 2 * 720),
    # Of 840 + 70 biases, ReLU on 70, 280 multiply-adds, half stays.
    ("ptflops", "tokens_linear", 2, "forward", "divided_by_batch", -(840 + 70 + 70 + 280) // 2),
    # 1,152 + 384 biases + 75 pixels of the first sample, halved: 805.5, and 150 of the function: printed 955.
    ("ptflops", "odd_resizing", 2, "forward", "rounded", -0.5),
    # Weights of 84 and 28 once instead of on 5 tokens.
    ("torchinfo", "tokens_linear", 1, "forward", "positions_ignored", -4 * 84 - 4 * 28),
    ("torchinfo", "embeddings", 1, "forward", "embedding_as_product", 11 * 12),
    # Weights of 108 and 36 at 9 and 4 "positions", which are features, instead of on 5 tokens.
    ("torchinfo", "named_convolution", 1, "forward", "name_taken_for_convolution", 108 * (9 - 5) + 36 * (4 - 5)),
    ("torchinfo", "named_convolution", 1, "forward", "parameters_as_operations", 9 * 9 + 4 * 4),
    # (groups - 1) · 2 · multiply-adds: 8 groups of 16 · 72, 4 of 4 · 96, 3 of 4 · 96 (transposed, at its input).
    ("flop_counter_mode", "grouped", 1, "backward", "grouped_backward", 7 * 2304 + 3 * 768 + 2 * 768),
    # One product of scores more: 2 heads · 5 · 5 · 4, 2 FLOP each; of three keys 240.
    pytest.param(
        *("flop_counter_mode", "fused_attention", 1, "backward", "scores_computed_again", 3 * 400 + 240),
        marks=pytest.mark.skipif(bool(NEEDS_2_15), reason="an older torch has no formula for a CPU's kernel"),
    ),
    # 12 → 9 on 5 tokens; 9 → 12 and the layer alone, 12 → 7, are called again and cut short.
    ("flop_counter_mode", "checkpointed_linear", 1, "backward", "recompute_counted", 1080),
    ("torch_profiler", "checkpointed_linear", 1, "backward", "recompute_counted", 1080 + 1080 + 840),
    # The second head, 9 → 5 on 5 tokens, runs in training alone; the other product in evaluation alone.
    ("fvcore", "Auxiliary", 1, "forward", "eval_graph", -450),
    ("thop", "EvaluatedOnly", 1, "forward", "eval_graph", 810),
    # Filters divided by groups once more, and rounded down: 3 to 1 of 31 positions · 4 · 2; 2 and 1 to none.
    ("calflops", "dimensions", 1, "forward", "transposed_divided_by_groups", -2 * (31 * 16 + 128 * 32 + 512 * 32)),
    # Keys and values of 7, of which it makes 7 × 7 projections, heads of 2 and an output of 7 × 7: 1,529, not 2,304.
    ("ptflops", "cross_attention", 1, "forward", "attention_shapes", 1529 - 2304),
    ("ptflops", "attention", 1, "forward", "attention_scalars_counted", 5 * 12 + 3 * 5 * 5),
    # The state's projection from 6 to 4, in 2 layers and 5 steps.
    ("deepspeed", "projected", 1, "forward", "recurrent_steps", -2 * 2 * 5 * 24),
    ("fvcore", "projected", 1, "forward", "recurrent_not_seen", -6240),
    # conv 3 → 4 at 36 positions, linear 144 → 5.
    ("thop", "subclasses", 1, "forward", "subclass_not_seen", -2 * (36 * 108 + 720)),
    ("thop", "past_hooks", 1, "forward", "functional_not_seen", -2 * 5 * (108 + 36)),
    ("thop", "attention", 1, "forward", "attention_module_not_seen", -2 * (4 * 5 * 144 + 2 * 25 * 12)),
    ("fvcore", "fused_attention", 1, "forward", "attention_not_seen", -(3 * 800 + 480)),
    ("deepspeed", "softmaxes", 1, "forward", "softmax_counted", 2 * 35),
    ("thop", "softmaxes", 1, "forward", "softmax_counted", 5 * (3 * 7 - 1)),
    ("fvcore", "sampling", 1, "forward", "sampling_counted", 4 * 4 * 15),
    ("ptflops", "upsampling", 1, "forward", "resizing_counted", 4 * 4 * 64),
    ("ptflops", "upsampling", 1, "forward", "resizing_counted_twice", 4 * 4 * 64),
    # torch.add and Tensor.add, five times 35; no `+`.
    ("deepspeed", "additions", 1, "forward", "addition_counted", 5 * 35),
    # Matrices by vectors, six of 5 × 7, and two products of vectors.
    ("flop_counter_mode", "vectors", 1, "forward", "operator_without_rule", -(6 * 70 + 2 * 14)),
    # Words for padding: 64 · 108, 64 · 256, 36 · 180, 36 · 120; the circular one pads before.
    ("torch_profiler", "padded_by_word", 1, "forward", "string_padding_not_seen", -2 * (6912 + 16384 + 6480 + 4320)),
    # 49 positions for 64, 30 for 36.
    ("deepspeed", "padded_by_word", 1, "forward", "even_kernel", -2 * (15 * 256 + 6 * 120)),
    # One dimension 1,116 and 744, three 3,888 and 2,304, transposed 9,216, 4,096, 16,384 and 132,192.
    ("torch_profiler", "dimensions", 1, "forward", "not_two_dimensional", -2 * (8052 + 161_888)),
    # 4 × 7 by 2 × 7 × 5, three times: one of two samples.
    ("deepspeed", "broadcast", 2, "forward", "broadcast_from_first", -3 * 280),
    # 5 × 7 by 7, taken for 7 × 7, three times; 7 by 7 once.
    ("deepspeed", "vectors", 1, "forward", "vector_as_matrix", 3 * 6 * 70 + 6 * 14),
    ("ptflops", "deformable", 1, "forward", "deformable_extra", 9 * 24 * 64),
    ("ptflops", "modulated", 1, "forward", "deformable_extra", 9 * 25 * 64),
    # On 512 elements: batch norm 2, 1, 5 and 4 (its own means), group 5 and 4, instance 4 and 5, layer 5 and 4.
    ("deepspeed", "norms", 1, "forward", "normalization_counted", 39 * 512),
    ("thop", "norms", 1, "forward", "normalization_counted", (4 + 2 + 4 + 2 + 2 + 4 + 4 + 2) * 512),
    # Twice two frozen convolutions; twice the linear layer is right.
    ("calflops", "frozen", 1, "backward", "backward_as_twice_forward", 4 * (36 * 108 + 16 * 180)),
    # 7 × 7 by 7 × 7; the tokens by the numbers on 35, twice on 7. Sums that begin with a constant are no functions.
    ("pthflops", "constants", 1, "forward", "constants_folded", -2 * 343),
    ("pthflops", "constants", 1, "forward", "multiplication_counted", 2 * (35 + 7 + 7)),
    ("pthflops", "constants", 1, "forward", "addition_counted", 2 * (35 + 35)),
    ("fvcore", "unused", 1, "forward", "result_not_used", -2 * 5 * 35),
    ("fvcore", "unused", 1, "forward", "normalization_counted", None),
    ("fvcore", "applied", 1, "forward", "custom_function_not_seen", -2 * 5 * 21),
    ("fvcore", "applied", 1, "forward", "normalization_counted", None),
    # 3 channels by a width of 6 for 36 positions, 5 by 6 for 36, 4 by 12 · 12 for 144, 4 by 12 for 144.
    ("ptflops", "without_batch", 1, "forward", "without_batch", 135 * -18 + 180 * -6 + 32 * 432 + 32 * -96),
    # A height of 8 for 3 channels; of 6 for 5, and 169 positions for 36; 1 for 4; 13 // 2 for 2.
    (
        "thop",
        "without_batch",
        1,
        "forward",
        "without_batch",
        180 * 9 * 5 + (676 * 54 - 36 * 180) + 288 * 4 * -3 + 576 * 4 * 4,
    ),
    # 5 channels by a width of 6 for 36 positions, 4 by 13 for 36, 2 by 12 · 12 for 144, 4 by 12 for 144.
    ("pthflops", "without_batch", 1, "forward", "without_batch", 135 * -6 + 180 * 16 + 32 * 144 + 32 * -96),
    ("torchinfo", "without_batch", 1, "forward", "without_batch", 135 * -6 + 180 * 16 + 32 * 144 + 32 * -96),
    ("torch_profiler", "without_batch", 1, "forward", "without_batch", -2 * (36 * 135 + 144 * 32)),
    ("torch_profiler", "warped", 1, "forward", "inner_products", 2 * 30 * 3 * 2),
    # Of the first product alone: the rest is twice the forward pass, though torch enters the engine again.
    ("calflops", "checkpointed_with_reentry", 1, "backward", "backward_as_twice_forward", 1440),
    ("calflops", "checkpointed_with_reentry", 1, "backward", "backward_not_counted", None),
    ("calflops", "checkpointed_twice", 1, "backward", "backward_as_twice_forward", 1440),
    ("calflops", "checkpointed_twice", 1, "backward", "backward_not_counted", None),
    # Weights' gradients of all but the linear layer, and the inputs' of all but the first.
    ("torch_profiler", "grouped", 1, "backward", "backward_not_counted", -2 * (36 * 216 + 2 * (1152 + 384 + 384))),
]
"""Counter, net, batch, pass, cause → what it adds, worked out from the network's sizes and the counter's rule."""


def test_attention_on_a_cpu_counts_where_the_counter_of_this_torch_has_a_formula():
    """FlopCounterMode of torch 2.15 has one, of 2.14 none: there all the attention is without a rule."""
    recording = recorded("attention", 1)
    kernels = {f"aten._scaled_dot_product_flash_attention_for_cpu{end}" for end in ("", "_backward")}
    assert kernels <= {operation.name for operation in recording.operations}
    for formulas, times in ((recording.formulas | kernels, 1), (recording.formulas - kernels, 0)):
        for phase in ("forward", "backward"):
            items, cause_of = flop_counter_mode(dataclasses.replace(recording, formulas=formulas), phase)
            assert sum(item.kind == "attention" for item in items) == times
    assert cause_of(next(op for op in recording.operations if op.name in kernels)) == "attention_not_seen"


def test_an_operand_by_keyword_broadcasts_as_one_by_position():
    """A row of 3 and a column of 5: 15 additions."""
    call = functools.partial(
        Call, index=0, parent=None, what="function", name="torch.add", path="", serial=0, output=None, first=0, last=0
    )
    for arguments, keywords in (((Sized((3,)), Sized((5, 1))), {}), ((Sized((3,)),), {"other": Sized((5, 1))})):
        rule = elementwise("addition_counted", left_aligned=False)
        (item,) = rule(call(arguments=arguments, keywords=keywords))
        assert item.native == 15


@pytest.mark.parametrize(("counter", "net", "size", "phase", "cause", "flop"), BY_HAND)
def test_a_cause_by_hand(counter, net, size, phase, cause, flop):
    assert causes_of(counter, net, size, phase).get(cause) == flop
