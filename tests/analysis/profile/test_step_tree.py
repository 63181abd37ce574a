"""The module tree of a profiled step: every sum by hand, and the tree is the step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.profile.module_tree import conservation, tree
from results.records.step_profile import StepModule
from tests.support.made_up.made_up_profile import (
    ATTRIBUTED_MS,
    BETWEEN_MS,
    MODEL_FLOP,
    MODULES,
    MS,
    OPERATIONS,
    PROFILE,
    profile,
    untimed,
)


def test_a_module_has_what_is_below_it() -> None:
    """body: the convolution and the normalisation, both passes."""
    body = tree(PROFILE)["body"]
    assert (body.forward_flop, body.backward_flop, body.other_flop) == (8000, 16000, 300)
    assert (body.forward_time_s, body.backward_time_s) == pytest.approx((7 * MS, 14 * MS))
    assert (body.optimizer_time_s, body.operations, body.kernels) == (None, 4, 4.0)
    assert body.moved_bytes == 2000 + 2000 + 3000 + 4000
    assert (body.parameters, body.counted_parameters, body.depth) == (80, 80, 1)
    assert body.children == ("body.0", "body.1")
    assert body.waited_s == pytest.approx(1.5 * MS)


def test_the_root_is_the_step() -> None:
    """The loss counts for the forward pass; the optimizer's operation is the root's alone."""
    root = tree(PROFILE)[""]
    assert (root.forward_flop, root.backward_flop, root.model_flop) == (10_000, 20_000, MODEL_FLOP)
    assert root.forward_time_s == pytest.approx(8.5 * MS)
    assert root.backward_time_s == pytest.approx(16 * MS)
    assert root.optimizer_time_s == pytest.approx(1.5 * MS)
    assert root.forward_mac == 5000
    assert root.children == ("body", "head")


def test_utilization_counts_the_waits() -> None:
    """body: 24000 / 4e6 = 6 ms of 21 and 1.5 waited; head: 6000 / 4e6 = 1.5 ms of 3; a normalisation has no product."""
    nodes = tree(PROFILE)
    assert nodes["body"].utilization_ratio == pytest.approx(6 / 22.5)
    assert nodes["head"].utilization_ratio == pytest.approx(0.5)
    assert nodes["body.1"].utilization_ratio == 0
    assert nodes["body"].flop_per_s == pytest.approx(24_000 / (22.5 * MS))  # 1.5 ms of waits: the time of `used`, too


def test_a_module_is_bound_by_what_takes_most_of_its_time() -> None:
    """body: arithmetic 12 ms, memory 9, waits 1.5; the step: arithmetic 15, memory 10.5, launch 0.5."""
    nodes = tree(PROFILE)
    bounds = {path: nodes[path].bound for path in ("", "body", "body.0", "body.1", "head")}
    assert bounds == {"": "arithmetic", "body": "arithmetic", "body.0": "arithmetic", "body.1": "memory"} | {
        "head": "arithmetic"
    }
    assert nodes[""].time_by_bound_s["launch"] == pytest.approx(0.5 * MS)


def test_the_tree_conserves() -> None:
    told = conservation(PROFILE, tree(PROFILE))
    assert told.attributed_s == pytest.approx(ATTRIBUTED_MS * MS)
    assert told.between_s == pytest.approx(BETWEEN_MS * MS)
    assert told.step_s == pytest.approx((ATTRIBUTED_MS + BETWEEN_MS) * MS)
    assert (told.tree_flop, told.step_flop, told.tree_parameters, told.parameters) == (MODEL_FLOP, MODEL_FLOP, 100, 100)
    assert told.holds


@pytest.mark.parametrize(
    "broken",
    [
        profile(step_times_s=(0.0281, 0.0281)),
        profile(between_s={"forward": 1 * MS}),
        profile(parameters=101),
        profile(modules=(*MODULES[:-1], replace(MODULES[-1], own_parameters=21))),
    ],
)
def test_what_does_not_add_up_is_seen(broken: object) -> None:
    assert not conservation(broken, tree(broken)).holds  # type: ignore[arg-type]


def test_flop_that_the_tree_lost_are_seen() -> None:
    nodes = tree(PROFILE)
    assert not conservation(PROFILE, {"": replace(nodes[""], backward_flop=nodes[""].backward_flop - 2)}).holds


def test_recomputation_takes_time_and_is_no_model_flop() -> None:
    """The convolution calculated again in the backward pass: 4 ms more, 8000 FLOP of their own."""
    again = replace(OPERATIONS[0], index=9, phase="recompute", waited_s=0.0)
    found = profile(operations=(*OPERATIONS, again), step_times_s=(0.032,))
    nodes = tree(found)
    assert (nodes["body"].backward_flop, nodes["body"].recompute_flop) == (16_000, 8000)
    assert nodes["body"].backward_time_s == pytest.approx(18 * MS)
    assert conservation(found, nodes).holds


def test_a_parameter_of_two_modules_counts_once() -> None:
    """tied: has head's weight of 20 and none of its own; the tree's sum stays 100, its own line says 20."""
    tied = StepModule(module="tied", type="Linear", parameters=20)
    found = profile(modules=(*MODULES, tied))
    nodes = tree(found)
    assert (nodes["tied"].parameters, nodes["tied"].counted_parameters) == (20, 0)
    assert conservation(found, nodes).holds


def test_an_operation_of_no_module_counts_for_the_nearest_above() -> None:
    strange = replace(OPERATIONS[3], module="head.gone.away")
    nodes = tree(profile(operations=(*OPERATIONS[:3], strange, *OPERATIONS[4:])))
    assert nodes["head"].forward_flop == 2000


def test_without_times_there_are_costs_and_no_times() -> None:
    nodes = tree(untimed())
    assert nodes[""].model_flop == MODEL_FLOP
    assert {node.time_s for node in nodes.values()} == {None}
    assert {node.bound for node in nodes.values()} == {""}
    assert nodes["body"].utilization_ratio is None
    assert conservation(untimed(), nodes).holds


def test_a_profile_without_modules_has_a_root() -> None:
    (root,) = tree(profile(modules=())).values()
    assert (root.type, root.model_flop, root.parameters) == ("net", MODEL_FLOP, 100)
