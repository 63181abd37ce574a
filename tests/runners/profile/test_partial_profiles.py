"""Definition: a profile with an operation that no rule counts shows no total, rate or share that lacks it.

The model is a linear layer 8 → 8 of batch 4 and a product of the program's own behind it. Known are the layer's 2 · 4 ·
8 · 8 = 512 FLOP forward and as many for its weight's gradient, and the bias's 32 additions.
"""

import csv
import io
from dataclasses import replace

import pytest
import torch
from torch import nn

from measure.profile.step_profile import profile_step
from reports.profile import document, module_rows, operation_rows
from reports.shared.layout import csv_of
from results.records.answers import Machine, StepProfile
from runners.profiler import Profiler, profile_model
from tests.support.made_up.made_up_profile import PROFILE

LAYER = 2 * 4 * 8 * 8


@torch.library.custom_op("partial_profile::multiplied", mutates_args=())
def multiplied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


multiplied.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
multiplied.register_autograd(
    lambda ctx, g: (g @ ctx.saved_tensors[1].t(), ctx.saved_tensors[0].t() @ g),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


class Own(nn.Module):
    """The program's own product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return multiplied(x, self.weight)


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), Own())


MACHINE = Machine(
    device="cpu", peak_by_unit={"fp32": 1e9}, datasheet_by_unit={"fp32": 2e9}, bytes_per_s=1e9,
    datasheet_bytes_per_s=2e9, launch_s=1e-6,
)  # fmt: skip


@pytest.fixture(scope="module")
def recorded() -> StepProfile:
    profile = profile_step(model(), torch.ones(4, 8), steps=2)
    return replace(profile, machine=MACHINE, recompute_fwd_factor=1.0)


def test_deepspeeds_functions_give_no_partial_sum():
    given = (torch.ones(4, 8),)
    assert profile_model(model(), args=given, print_profile=False, as_strings=False) == (None, None, 136)
    words = profile_model(model(), args=given, print_profile=False)
    assert words == ("at least 544 FLOP", "at least 256 MAC", "136")
    profiler = Profiler(net := model())
    profiler.start_profile()
    net(*given)
    profiler.stop_profile()
    assert (profiler.get_total_flops(), profiler.get_total_macs()) == (None, None)
    assert profiler.get_total_flops(as_string=True) == "at least 544 FLOP"
    assert profiler.get_total_macs(as_string=True) == "at least 256 MAC"


def test_json_and_csv_have_nothing_in_its_place(recorded):
    found = document(recorded)
    step = found["step"]
    absent = ("model_flop", "forward_flop", "other_flop", "utilization_ratio", "attainable_ratio")
    assert {name: step[name] for name in absent} == dict.fromkeys(absent)
    assert (step["at_least_flop"], step["unknown_calls"]) == (4 * LAYER, 1)  # two products of its gradients are known
    (row,) = [each for each in found["operations"] if not each["understood"]]
    absent = ("model_flop", "other_flop", "intensity", "attained_ratio", "attained_flop_per_s", "roof_flop_per_s")
    assert {name: row[name] for name in absent} == dict.fromkeys(absent)
    (line,) = [each for each in _read(csv_of(operation_rows(recorded))) if each["understood"] == "false"]
    assert (line["model_flop"], line["intensity"], line["attained_ratio"]) == ("", "", "")
    rows = {each["module"]: each for each in _read(csv_of(module_rows(recorded)))}
    for path in ("", "1"):
        assert [rows[path][name] for name in ("model_flop", "forward_flop", "flop_per_s", "utilization_ratio")] == 4 * [
            ""
        ]
    assert rows["0"]["forward_flop"] == str(LAYER)
    assert rows["0"]["flop_per_s"]


def test_a_time_of_some_operations_is_at_least():
    """The head's product takes 2 ms backward; without its time nothing of the pass is a total."""
    untimed = tuple(replace(o, time_s=None) if o.index == 5 else o for o in PROFILE.operations)
    profile = replace(PROFILE, operations=untimed)
    rows = {row["module"]: row for row in document(profile)["modules"]}
    assert (rows["head"]["backward_time_s"], rows[""]["backward_time_s"]) == (None, None)
    assert (rows["head"]["untimed_operations"], rows["body"]["untimed_operations"]) == (1, 0)
    assert rows[""]["at_least_time_s"] == pytest.approx(24e-3)
    assert rows["body"]["backward_time_s"] == pytest.approx(14e-3)


def _read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_an_operation_without_a_rule_has_bytes_and_no_flop(recorded):
    (own,) = [each for each in recorded.operations if each.name == "partial_profile.multiplied"]
    assert (own.model_flop, own.other_flop, own.at_least_flop, own.understood) == (None, None, 0, False)
    assert own.read_bytes == 4 * (4 * 8 + 8 * 8)
    assert own.written_bytes == 4 * (4 * 8)
    others = [each for each in recorded.operations if each is not own]
    assert all(each.understood for each in others)


def test_an_operation_without_sizes_for_its_formula_keeps_its_bytes():
    from measure.profile import step_profile
    from results.records.counts import Operation

    odd = Operation(
        index=0, name="aten.addmm", kind="matmul", phase="forward", module="", sequence_nr=None, forward_index=None,
        input_names=("self",), input_shapes=((4, 8),), input_dtypes=("float32",), output_shapes=((4, 8),),
        output_dtypes=("float32",), attributes={}, reads=(1,), writes=(2,),
    )  # fmt: skip
    (row,), unknown = step_profile.operation_rows([odd], [], "fp32", "cpu")
    assert (row.model_flop, row.read_bytes, row.written_bytes) == (None, 128, 128)
    assert unknown == {"aten.addmm": 1}
