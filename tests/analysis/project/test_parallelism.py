"""Training in parallel against the papers' own numbers, and against pipelines and shards that are walked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from analysis.devices.interconnects import Link
from analysis.project.compute.published_runs import observations
from analysis.project.parallelism.collectives import ring_bytes
from analysis.project.parallelism.plans import candidates, plans
from analysis.project.parallelism.step import Cluster, Plan, Unfit, groups, held, step, zero_bytes
from analysis.project.parallelism.transformer import Transformer

GPT3 = Transformer(96, 12288, 96, 2048, 51200)
A100 = Cluster(
    312e12, 2.039e12, 80e9, Link("NVLink 3", "nvlink", 300e9, 3.4e-6), Link("HDR", "network", 25e9, 9.6e-6),
    reachable=271.2 / 312,
)  # fmt: skip


def test_parameters_and_training_days_are_megatrons() -> None:
    """Narayanan et al., section 5.1: 174.6 and 1008.0 billion; and at their rates 34 and 84 days (8 T P / (n X))."""
    trillion = Transformer(128, 25600, 160, 2048, 51200)
    assert GPT3.parameters == pytest.approx(174.6e9, rel=1e-3)
    assert trillion.parameters == pytest.approx(1008.0e9, rel=1e-3)
    for model, tokens, devices, rate, days in ((GPT3, 300e9, 1024, 140e12, 34), (trillion, 450e9, 3072, 163e12, 84)):
        sequences = 1536
        flop = model.step_flop(sequences) + model.recomputed_flop(sequences, "full")
        steps = tokens / (sequences * 2048)
        assert flop * steps / (devices * rate) / 86400 == pytest.approx(days, rel=0.03)


def test_step_flop_is_their_equation_three() -> None:
    l, h, s, v, b = 96, 12288, 2048, 51200, 64  # noqa: E741
    recomputed = 96 * b * s * l * h**2 * (1 + s / (6 * h) + v / (16 * l * h))
    assert GPT3.step_flop(b) + GPT3.recomputed_flop(b, "full") == pytest.approx(recomputed)


def test_their_hardware_flop_count_the_scores_three_times() -> None:
    """Equation 8 of Korthikanti et al. has s/(3 h): three times the 4 B s² h that recomputing scores takes."""
    for name, h, layers in (("GPT 22B", 6144, 48), ("GPT 175B", 12288, 96), ("GPT 530B", 20480, 105)):
        (row,) = [each for each in observations() if each.model == name]
        model = Transformer(layers, h, 64, 2048, 51200)
        assert row.published_ratio
        assert row.hardware_ratio
        extra = model.recomputed_flop(1, "selective") / model.step_flop(1)
        assert row.hardware_ratio / row.published_ratio - 1 == pytest.approx(3 * extra, abs=2e-3)


def test_zero_is_the_papers_figure_one() -> None:
    """Rajbhandari et al.: 7.5 billion parameters on 64 devices: 120, 31.4, 16.6 and 1.9 GB."""
    totals = [sum(zero_bytes(7.5e9, stage, 64)) / 1e9 for stage in range(4)]
    assert totals == pytest.approx([120, 31.4, 16.6, 1.88], rel=5e-3)


@pytest.mark.parametrize("stage", range(4))
def test_zero_against_shards_that_are_dealt_out(stage: int) -> None:
    """24 parameters over 4 devices, each state's bytes dealt to its owners one by one."""
    devices, parameters = 4, 24
    have = [0] * devices
    for parameter in range(parameters):
        for size, sharded_from in ((2, 3), (2, 2), (12, 1)):
            owners = [parameter % devices] if stage >= sharded_from else range(devices)
            for owner in owners:
                have[owner] += size
    assert set(have) == {sum(zero_bytes(parameters, stage, devices))}


def test_activations_are_korthikantis() -> None:
    """GPT-3: 5 a s/h = 80, so that leaving out the scores saves 80 of 114 = 70 %; 530 billion parameters: 65 %."""
    sbh = 2048 * 12288
    assert GPT3.activation_bytes(1, 1, "none") == pytest.approx(sbh * (34 + 80))
    assert GPT3.activation_bytes(1, 8, "none", sequence_parallel=False) == pytest.approx(sbh * (10 + 24 / 8 + 80 / 8))
    assert GPT3.activation_bytes(1, 8, "none") == pytest.approx(sbh / 8 * (34 + 80))
    assert GPT3.activation_bytes(3, 8, "selective") == pytest.approx(3 * sbh / 8 * 34)
    assert GPT3.activation_bytes(1, 1, "full") == pytest.approx(2 * sbh)
    big = Transformer(105, 20480, 128, 2048, 51200)
    saved = 1 - big.activation_bytes(1, 1, "selective") / big.activation_bytes(1, 1, "none")
    assert saved == pytest.approx(0.65, abs=0.005)


def test_parameters_layer_by_layer() -> None:
    """A block: 3h² + 3h, h² + h, 4h² + 4h, 4h² + h and two normalisations of 2h; embeddings of tokens and places."""
    h, layers = 12288, 96
    block = 3 * h**2 + 3 * h + h**2 + h + 4 * h**2 + 4 * h + 4 * h**2 + h + 2 * 2 * h
    assert GPT3.parameters == pytest.approx(layers * block + (51200 + 2048) * h, rel=1e-12)


def test_what_a_device_keeps_by_hand() -> None:
    """One stage: blocks and logits. Four: the first has four micro-batches of its quarter, the last one and logits."""
    model = Transformer(8, 1024, 16, 512, 1000)
    block, logits = model.activation_bytes(2, 1, "none"), 4 * 512 * 2 * 1000
    assert model.logit_bytes(2, 1) == logits == 8 * model.logit_bytes(2, 8)
    assert held(model, Plan(micro=2, recompute="none"), 8).activations == pytest.approx(8 * block + logits)
    assert held(model, Plan(micro=2, pipeline=4, recompute="none"), 8).activations == pytest.approx(4 * 2 * block)
    assert held(model, Plan(micro=2, pipeline=4, recompute="none"), 4).activations == pytest.approx(2 * 2 * block)
    two = held(model, Plan(micro=2, pipeline=4, chunks=2, recompute="none"), 8).activations
    assert two == pytest.approx(4 * 2 * block * (1 + 3 / 8))  # Korthikanti et al., section 4.2.3: 1 + (p − 1)/(p v)
    wordy = replace(model, vocabulary=200_000)
    last = held(wordy, Plan(pipeline=4, recompute="none"), 1).activations
    assert last == pytest.approx(2 * model.activation_bytes(1, 1, "none") + wordy.logit_bytes(1, 1))
    inputs = held(model, Plan(micro=2, recompute="full"), 8).activations
    assert inputs == pytest.approx(8 * 2 * 512 * 2 * 1024 + model.activation_bytes(2, 1, "selective") + logits)
    assert model.activation_bytes(1, 8, "full") == 2 * 512 * 1024 / 8
    assert model.activation_bytes(1, 8, "full", sequence_parallel=False) == 2 * 512 * 1024
    whole = held(model, Plan(data=4, zero=3), 4)
    parameters = 8 * (12 * 1024**2 + 13 * 1024) + 1512 * 1024
    assert whole.weights == pytest.approx(2 * parameters / 4 + 2 * 2 * 12 * 1024**2)  # two blocks are whole at a time
    assert whole.total == pytest.approx(whole.weights + 14 * parameters / 4 + whole.activations)


def test_tensor_parallelism_sends_8_bsh_a_layer() -> None:
    """Narayanan et al., section 3.2: 8 b s h (t − 1)/t elements a layer and device, forward and backward together."""
    plan = Plan(tensor=8, micro=2, recompute="none")
    flat = Link("flat", "nvlink", 1e9, 1e-30)
    cluster = replace(A100, within=flat, between=flat, achieved=1.0)
    once, again = (step(GPT3, replace(plan, recompute=which), 2, cluster).tensor_s for which in ("none", "full"))
    assert once * 1e9 / 2 / GPT3.layers == pytest.approx(8 * 2 * 2048 * 12288 * 7 / 8)  # bf16
    assert again == pytest.approx(1.5 * once)


def walked(stages: int, micros: int, forward: float, backward: float) -> float:
    """One forward, one backward in turn (1F1B), each as soon as its inputs and its device are there: the last end."""
    ends: dict[tuple[str, int, int], float] = {}
    orders = []
    for stage in range(stages):
        warm = min(stages - stage - 1, micros)
        order = [("f", i) for i in range(warm)]
        for i in range(micros - warm):
            order += [("f", warm + i), ("b", i)]
        orders.append(order + [("b", i) for i in range(micros - warm, micros)])
    free, places = [0.0] * stages, [0] * stages
    while any(place < len(order) for place, order in zip(places, orders, strict=True)):
        for stage in range(stages):
            if places[stage] == len(orders[stage]):
                continue
            kind, i = orders[stage][places[stage]]
            before = (
                ("f", i, stage - 1) if kind == "f" else ("b", i, stage + 1) if stage < stages - 1 else ("f", i, stage)
            )
            if (kind == "f" and stage == 0) or before in ends:
                start = max(free[stage], ends.get(before, 0.0))
                free[stage] = ends[kind, i, stage] = start + (forward if kind == "f" else backward)
                places[stage] += 1
    return max(free)


@pytest.mark.parametrize(("stages", "micros"), [(1, 4), (2, 3), (4, 4), (4, 16), (8, 9)])
def test_the_bubble_is_that_of_a_walked_pipeline(stages: int, micros: int) -> None:
    # Narayanan et al., section 2.2.1: (p − 1)(forward + backward) beside m (forward + backward)
    assert walked(stages, micros, 1.0, 2.0) == pytest.approx((micros + stages - 1) * 3.0)
    model = Transformer(8, 1024, 16, 512, 1000)
    free = replace(A100, within=Link("free", "nvlink", 1e30, 1e-30), between=Link("free", "network", 1e30, 1e-30))
    found = step(model, Plan(pipeline=stages), micros, free)
    assert found.bubble_s / found.kernels_s == pytest.approx((stages - 1) / micros)
    halved = step(model, Plan(pipeline=2, chunks=2), 4, free)
    assert halved.bubble_s / halved.kernels_s == pytest.approx(1 / 2 / 4)


def test_a_step_is_below_what_megatron_measured_and_not_far() -> None:
    """Korthikanti et al., table 5, on A100: 13.75, 37.83 and 71.49 s. A floor, and within a quarter of it."""
    rows = ((96, 12288, 96, 8, 64, 13.75), (105, 20480, 128, 35, 280, 37.83), (128, 25600, 160, 64, 512, 71.49))
    for layers, width, heads, stages, batch, measured_s in rows:
        model = Transformer(layers, width, heads, 2048, 51200)
        found = step(model, Plan(1, 8, stages, 1, 0, "selective"), batch, A100)
        assert 0.75 * measured_s < found.step_s < measured_s
        assert found.held.total < A100.memory_bytes


def test_leaving_blocks_whole_is_as_much_faster_as_they_measured() -> None:
    """530 billion parameters on 2240 A100: 54.2 % of the peak against 42.1 % with full recomputation, 29 % faster."""
    model = Transformer(105, 20480, 128, 2048, 51200)
    whole, again = (step(model, Plan(8, 8, 35, 1, 1, kind), 2240, A100) for kind in ("selective", "full"))
    assert again.step_s / whole.step_s == pytest.approx(54.2 / 42.1, rel=0.04)
    assert again.hardware_ratio > again.model_ratio == pytest.approx(whole.model_ratio * whole.step_s / again.step_s)


def test_a_step_is_the_sum_of_its_parts() -> None:
    found = step(GPT3, Plan(4, 8, 8, 1, 1), 256, A100)
    parts = found.kernels_s + found.tensor_s + found.send_s + found.bubble_s + found.data_exposed_s + found.update_s
    assert found.step_s == pytest.approx(parts)
    assert found.kernels_s == max(found.compute_s, found.moved_s)
    assert found.model_ratio == pytest.approx(GPT3.step_flop(256) / (found.step_s * 256 * 312e12))


def test_each_part_of_a_step_by_hand() -> None:
    """2 layers of 256, 8 of 16 sequences a replica, tensor 2, 2 stages, links of 1e9 B/s that answer at once."""
    model = Transformer(2, 256, 4, 128, 1000)
    link = Link("flat", "nvlink", 1e9, 1e-30)
    cluster = Cluster(1e12, 1e11, 80e9, link, link, node=8, reachable=0.5, achieved=1.0)
    plan = Plan(data=2, tensor=2, pipeline=2, micro=1, zero=1, recompute="full")
    found = step(model, plan, 16, cluster)
    tokens, micro = 128, 8
    blocks, scores, logits = 24 * tokens * 256**2, 4 * tokens * 128 * 256, 2 * tokens * 256 * 1000  # a layer; the model
    assert found.compute_s == pytest.approx(micro * (4 * (blocks + scores) + 3 * logits) / 2 / 0.5e12)
    parameters = (12 * 256**2 + 13 * 256 + 1128 * 256) / 2  # one layer and an embedding, over two
    moved = 8 * parameters + 3 * model.activation_bytes(1, 2, "selective")
    assert found.moved_s == pytest.approx(micro * moved / 1e11)
    message = 2 * tokens * 256
    assert found.tensor_s == pytest.approx(micro * 6 * 2 * message / 2 / 1e9)
    assert step(model, replace(plan, tensor_hidden=0.75), 16, cluster).tensor_s == pytest.approx(found.tensor_s / 4)
    assert found.send_s == pytest.approx(micro * 2 * (message / 2) / 1e9)
    assert found.data_s == pytest.approx(2 * 2 * parameters / 2 / 1e9)
    assert found.data_exposed_s == pytest.approx(max(0, found.data_s - found.kernels_s / micro * 2 / 3))
    assert found.data_exposed_s > 0
    assert found.update_s == pytest.approx(28 * parameters / 2 / 1e11)
    flop = 3 * (2 * (blocks + scores) + logits) * 16
    assert found.model_ratio == pytest.approx(flop / (8 * 1e12 * found.step_s))
    assert found.hardware_ratio == pytest.approx((flop + 2 * (blocks + scores) * 16) / (8 * 1e12 * found.step_s))


def test_stage_three_sends_half_as_much_again() -> None:
    """Rajbhandari et al., section 7: 2 Ψ up to stage 2, 3 Ψ in stage 3, for one micro-batch."""
    model = Transformer(8, 1024, 16, 512, 1000)
    flat = Link("flat", "nvlink", 1e9, 1e-30)
    cluster = replace(A100, within=flat, between=flat, achieved=1.0)
    times = [step(model, Plan(data=8, zero=zero), 8, cluster).data_s for zero in range(4)]
    assert times[1] == pytest.approx(times[0])
    assert times[2] == pytest.approx(times[0])
    assert times[3] == pytest.approx(1.5 * times[0])
    parameters = (12 * 1024**2 + 13 * 1024) * 8 + 1512 * 1024
    assert times[0] == pytest.approx(2 * ring_bytes(2 * parameters, 8) / 1e9)
    twice = [step(model, Plan(data=8, zero=zero), 16, cluster).data_s for zero in range(4)]
    assert twice == pytest.approx([times[0], times[0], 1.5 * times[0], 2 * times[3]])


def test_replicas_of_a_tensor_split_share_a_node_where_they_can() -> None:
    tensor, data = groups(Plan(data=16, tensor=4), A100)
    assert (tensor.per_node, tensor.nodes) == (4, 1)
    assert (data.per_node, data.nodes) == (2, 8)
    assert groups(Plan(data=16, tensor=8), A100)[1].per_node == 1


@pytest.mark.parametrize(
    ("plan", "batch", "words"),
    [
        (Plan(pipeline=7), 64, "96 layers are no multiple of 7 stages"),
        (Plan(tensor=5), 64, "96 heads are no multiple of tensor parallelism 5"),
        (Plan(data=3), 64, "64 sequences is no multiple of 3 replicas"),
        (Plan(pipeline=2, zero=3), 64, "ZeRO stage 3 with a pipeline"),
        (Plan(zero=4), 64, "a ZeRO stage from 0 to 3"),
        (Plan(pipeline=4, chunks=2), 6, "multiples of 4 stages, got 6"),
    ],
)
def test_plans_that_do_not_divide_are_refused(plan: Plan, batch: int, words: str) -> None:
    with pytest.raises(Unfit, match=words):
        held(GPT3, plan, batch)


def test_the_search_has_every_plan_that_fits_and_no_other() -> None:
    model = Transformer(8, 1024, 16, 512, 1000)
    every = list(candidates(model, 8, 16, 8))
    assert len(set(every)) == len(every)
    assert all(plan.devices == 8 for plan in every)
    # by hand, tensor 2 and pipeline 4: data 1, so micro-batches 1, 2, 4, 8, 16, no sharding, three recomputations
    assert len([plan for plan in every if (plan.tensor, plan.pipeline) == (2, 4)]) == 5 * 3
    small = replace(A100, memory_bytes=2e9)
    found = plans(model, 8, 16, small, {"recompute": "full"})
    assert found
    fitting = [plan for plan in every if plan.recompute == "full" and held(model, plan, 16).total <= 2e9]
    assert {plan for plan, _ in found} == set(fitting)
    assert [cost.step_s for _, cost in found] == sorted(cost.step_s for _, cost in found)
