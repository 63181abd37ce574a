"""Definition, injected fault: `runners.count --parallel` against formulas by hand; each refusal is one line."""

import json

import pytest
import torch

from runners import count as command
from tests.support.fakes.commands import refused, running, telling

NETS = """
from tests.support.nets.parallel_nets import BlockNet


def blocks():
    return BlockNet(16, 2)
"""
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": 98,
}  # fmt: skip
MIXTRAL = {
    **LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_key_value_heads": 4,
    "num_local_experts": 4, "num_experts_per_tok": 2,
}  # fmt: skip
SEQUENCE = 16


@pytest.fixture
def count(capsys):
    return running(command.main, capsys)


@pytest.fixture
def document(capsys):
    return telling(command.main, capsys)


@pytest.fixture
def net(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    return f"{tmp_path / 'nets.py'}:blocks"


@pytest.fixture
def plan(tmp_path):
    (tmp_path / "plan.toml").write_text('"layers.*.up" = "colwise"\n"layers.*.down" = "rowwise"\n')
    return tmp_path / "plan.toml"


@pytest.fixture
def llama(tmp_path):
    (tmp_path / "llama.json").write_text(json.dumps(LLAMA))
    return f"hf:{tmp_path / 'llama.json'}"


def test_a_model_with_a_plan_of_its_own_adds_up_to_the_formula(document, llama):
    """Llama by the sizes of its config. A token's products of a block: q and o 2·32², k and v 2·32·16, gate, up and
    down 3·32·64; scores and values 2·16·32; then 32·98 logits. Backward twice as much."""
    found = document(llama, "--parallel", "dp=2,tp=2,pp=2", "--size", f"seq={SEQUENCE}", "--batch-size", 4)
    block = 2 * 32**2 + 2 * 32 * 16 + 3 * 32 * 64 + 2 * SEQUENCE * 32
    assert found["single_device_model_flop"] == 3 * 2 * 4 * SEQUENCE * (2 * block + 32 * 98)
    rest = found["replicated_flop"], found["recomputed_flop"], found["unexplained_flop"]
    assert found["sum_model_flop"] == found["single_device_model_flop"] + sum(rest)
    assert rest == (0, 0, 0)
    assert [rank["rank"] for rank in found["ranks"]] == list(range(8))
    assert found["ranks"][5]["coordinates"] == {"pp": 1, "dp": 0, "tp": 1}
    assert sum(rank["forward_flop"] + rank["backward_flop"] for rank in found["ranks"]) == found["sum_model_flop"]
    assert [rank["bubble_ratio"] for rank in found["ranks"]] == 8 * [pytest.approx(1 / 3)]
    assert all(rank["state_bytes"] > 16 * rank["parameters"] - 1 for rank in found["ranks"])
    assert set(found["ranks"][0]["collectives"][0]) == {"kind", "group", "size", "calls", "bytes"}


@pytest.mark.skipif(torch.__version__ < (2, 15), reason="an older torch has no shapes of grouped products in fp32")
def test_all_axes_together_and_experts_by_the_models_own_plan(document, tmp_path):
    """The axes of a mixture of experts: 32 ranks, four of which share the experts of a stage."""
    (tmp_path / "mixtral.json").write_text(json.dumps(MIXTRAL))
    arguments = ("--parallel", "dp=4,tp=4,pp=2,ep=4", "--size", f"seq={SEQUENCE}")
    found = document(f"hf:{tmp_path / 'mixtral.json'}", *arguments)
    assert (found["world"], found["axes"]) == (32, {"pp": 2, "dp": 4, "tp": 4, "ep": 4})
    rest = found["replicated_flop"] + found["recomputed_flop"]
    assert found["sum_model_flop"] == found["single_device_model_flop"] + rest
    assert found["unexplained_flop"] == 0
    groups = {(each["kind"], each["group"], each["size"]) for each in found["ranks"][0]["collectives"]}
    assert {("all_to_all", "ep", 4), ("all_reduce", "dp", 4), ("all_reduce", "experts", 4)} <= groups


def test_a_page_names_the_axes_and_the_experts_only_where_they_are_spread(count, net):
    _, out, _ = count(net, "--input", 8, "--parallel", "dp=2", "--batch-size", 4)
    assert "over 2 ranks (pp 1 × dp 2 × tp 1)" in " ".join(out.split())


def test_a_plan_from_a_file_and_what_it_leaves_whole(document, net, plan):
    found = document(net, "--input", 8, "--parallel", "tp=2", "--plan", plan, "--batch-size", 4)
    assert {(each["module"], each["times"]) for each in found["replicated"]} == {("first", 2), ("head", 2)}
    assert found["replicated_flop"] == 2 * (2 * 4 * 8 * 16) + 3 * (2 * 4 * 16 * 3)
    assert found["unexplained_flop"] == 0


def test_what_cannot_be_is_refused_in_a_line(count, net, llama, plan, tmp_path):
    (tmp_path / "bad.toml").write_text('"layers.*.ups" = "colwise"\n')
    (tmp_path / "list.json").write_text("[1]")
    here = (net, "--input", 8, "--parallel")
    mistakes = [
        ((*here, "dp=2,tp"), "--parallel: expected AXIS=N"),
        ((*here, "dp=2,ep=4"), "expected ep to divide dp=2, got ep=4; nearest 2"),
        ((*here, "dp=2,ep=2"), "the model has no ep_plan: expected --plan FILE for ep=2"),
        ((*here, "dp=2,ep=2", "--plan", plan), "the plan file has no style for ep: expected one for ep=2"),
        ((*here, "cp=2"), "expected the axes dp, tp, pp, ep, got 'cp'"),
        ((*here, "dp=2", "--batch-size", 3), "multiple of dp=2, got 3"),
        ((*here, "dp=2", "--detail"), "--parallel: cannot be combined with --detail"),
        ((*here, "pp=3"), "expected at least pp=3 layers, numbered children of one module; got 2"),
        ((*here, "dp=2", "--counters", "exact"), "--parallel: cannot be combined with --counters"),
        ((net, "--schedule", "gpipe"), "--schedule: expected --parallel with it"),
        ((net, "--plan", plan), "--plan: expected --parallel with it"),
        ((net, "--timeout", "inf"), "--timeout: expected a number from 1 to 1e+06, got 'inf'"),
        ((llama, "--parallel", "tp=3"), "expected tp to divide 4 num_attention_heads, got tp=3; nearest"),
        ((llama, "--parallel", "tp=4"), "expected tp to divide 2 num_key_value_heads, got tp=4; nearest 2"),
        ((*here, "tp=2", "--plan", tmp_path / "bad.toml"), "layers.*.ups"),
        ((*here, "tp=2", "--plan", tmp_path / "list.json"), "--plan: expected lines like"),
        ((*here, "tp=2", "--plan", tmp_path / "none.toml"), "--plan: expected a TOML or JSON file"),
    ]
    for arguments, words in mistakes:
        refused(count(*arguments), words)


def test_checkpointed_layers_are_recomputed_and_named_apart(document, net):
    found = document(net, "--input", 8, "--parallel", "dp=2", "--checkpoint", "layers.*")
    # two samples, the first product of two blocks: torch ends when it has what the backward pass needs
    assert found["recomputed_flop"] == 2 * 2 * 2 * 16 * 32
    assert found["unexplained_flop"] == 0
