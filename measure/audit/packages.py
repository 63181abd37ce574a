"""The formulas, each called as its package's own code calls it. Runs in the process of `child.py` only.

A package is read from a folder that holds it and not what it depends on. Its `__init__` files, which import most of a
training framework, are not run, and modules that the formula does not use are replaced by empty ones; both are named
in the answer (`shims`), and nothing else is replaced.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from analysis.audit import ENCODERS, GELU_GATES, Architecture, Model, NetworkSizes, matrices, pattern_of
from measure.audit.exact_numbers import Exact, exact_view, exactly
from measure.audit.maxtext import maxtext
from measure.audit.modules import hub_config, hub_model, outputs, sample
from measure.audit.profilers import (
    META,
    SCALED,
    BatchModel,
    Formula,
    by_periods,
    calflops,
    deepspeed,
    module_and_arguments,
    speed_monitor,
)
from measure.audit.sources import bare, cut, empty

PEAK = "the device's peak, which it asks for beside the count, is not looked up"


PARAMETERS = "parameters of transformers' module of the same sizes"


def decoder_of(model: Model, *, builder: str, adapts: bool = True) -> Architecture:
    """The decoder that a formula by a decoder's sizes reads. adapts: whether it trains adapters. Raises ValueError."""
    if isinstance(model, Architecture):
        return model
    if model.model_type == "lora" and adapts:
        return model.decoder
    raise ValueError(f"the formula of {builder} reads a decoder's sizes, and this model is of another form")


def pictures(model: Model) -> dict[str, list[Any]]:
    """Patches of the picture, as trainers of vision-language models hand them on."""
    is_tower = isinstance(model, NetworkSizes) and model.model_type == "qwen2_vl"
    return {"images_seqlens": [exactly(model["patches"])]} if is_tower and isinstance(model, NetworkSizes) else {}


def verl(folder: Path) -> tuple[Formula, list[str]]:
    """Its time is in TFLOP/s for a given time; a time of 10⁻¹² s gives FLOP."""
    shims = bare(folder, "verl", "verl.utils")
    counter: Any = importlib.import_module("verl.utils.flops_counter")
    counter.get_device_flops = lambda: 0

    def formula(model: Model, tokens: int) -> Any:
        seen = counter.FlopsCounter(exact_view(hub_config(model)))
        return seen.estimate_flops([Exact(tokens)], Exact(1, 10**12), **pictures(model))[0]

    return formula, [*shims, PEAK]


def veomni(folder: Path) -> tuple[Formula, list[str]]:
    shims = bare(folder, "veomni", "veomni.utils", "veomni.lora")
    try:
        counter: Any = importlib.import_module("veomni.utils.count_flops")
    except ImportError:
        shims += empty(
            veomni__lora__config={
                "LORA_MODULES_BY_MODEL_TYPE": {},
                "VeOmniLoraConfig": type("VeOmniLoraConfig", (), {}),
            },
            veomni__utils__device={"get_device_name": lambda: "cpu"},
        )
        counter = importlib.import_module("veomni.utils.count_flops")
    counter.get_device_flops = lambda: 0

    def formula(model: Model, tokens: int) -> Any:
        seen = counter.VeomniFlopsCounter(exact_view(hub_config(model)))
        given = pictures(model) | _adapters(counter, model)
        return seen.estimate_flops([Exact(tokens)], Exact(1, 10**12), **given)[0]

    return formula, [*shims, PEAK]


def _adapters(counter: Any, model: Model) -> dict[str, Any]:
    """VeOmni's own configuration of LoRA. Raises TypeError where it was replaced."""
    if not isinstance(model, NetworkSizes) or model.model_type != "lora":
        return {}
    names = list(matrices(model.decoder))
    targets = names if model.words["targets"] == "all" else names[:4]
    return {"lora_config": counter.VeOmniLoraConfig(r=exactly(model["rank"]), target_modules=targets)}


def nemo_automodel(folder: Path) -> tuple[Formula, list[str]]:
    names = ("nemo_automodel", "nemo_automodel.components", "nemo_automodel.components.utils")
    shims = bare(folder, *names)
    utils = importlib.import_module("nemo_automodel.components.utils.flops_utils")

    def formula(model: Model, tokens: int) -> Any:
        config = hub_config(model)
        chosen = utils.get_flops_formula_for_hf_config(config)
        if chosen is None:
            raise ValueError(f"it has no formula for {type(config).__name__}")
        return chosen(exact_view(config), gbs=Exact(1), seq_len=Exact(tokens))

    return formula, shims


def trl(folder: Path) -> tuple[Formula, list[str]]:
    """The function is taken out of its module, whose other functions import a trainer's dependencies."""
    import transformers
    from packaging.version import Version

    names = {"transformers": transformers, "Version": Version}
    function = cut(folder / "trl" / "trainer" / "utils.py", "compute_flops_per_token", names)

    def formula(model: Model, tokens: int) -> Any:
        return tokens * function(hub_config(model), tokens)

    return formula, ["trl/trainer/utils.py: only this function is run"]


def megatron_bridge(folder: Path) -> tuple[Formula, list[str]]:
    lora = type("LoRA", (), {})
    shims = empty(
        megatron__bridge__data__datasets__packing_utils={"calculate_avg_seqlen": None},
        megatron__bridge__peft__lora={"LoRA": lora},
        megatron__bridge__training__config={"ConfigContainer": object},
        megatron__bridge__utils__vocab_utils={"calculate_padded_vocab_size": lambda size, *_, **__: size},
    )
    path = folder / "megatron" / "bridge" / "training" / "utils" / "flop_utils.py"
    spec = importlib.util.spec_from_file_location("flop_utils", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no {path.name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def formula(model: Model, tokens: int) -> Any:
        is_adapted = isinstance(model, NetworkSizes) and model.model_type == "lora"
        provider = hybrid_provider(model, tokens) if is_hybrid(model) else bridge_provider(model, tokens)
        config = SimpleNamespace(model=provider, peft=lora() if is_adapted else None)
        return module.num_floating_point_operations(config, Exact(1))

    return formula, [*shims, "the vocabulary is not padded"]


def is_hybrid(model: Model) -> bool:
    """Of layers of Mamba-2."""
    return model.model_type in ("mamba2", "nemotron_h", "bamba")


def hybrid_provider(network: Any, tokens: int) -> SimpleNamespace:
    """The sizes of a hybrid under Megatron's names; a model of Mamba-2 alone is one without attention."""
    hidden = network["hidden_size"]
    pattern = pattern_of(network)
    sizes = {
        "num_layers": len(pattern),
        "hidden_size": hidden,
        "num_attention_heads": network.get("num_attention_heads") or 1,
        "num_query_groups": network.get("num_key_value_heads") or 1,
        "kv_channels": network["head_dim"],
        "ffn_hidden_size": network.get("intermediate_size") or hidden,
        "mamba_state_dim": network.get("state_size") or network["ssm_state_size"],
        "mamba_head_dim": network.get("mamba_head_dim") or network["head_dim"],
        "mamba_num_groups": network["n_groups"],
        "mamba_num_heads": network.get("num_heads") or network["mamba_num_heads"],
        "moe_ffn_hidden_size": network.get("moe_intermediate_size"),
        "moe_shared_expert_intermediate_size": network.get("moe_shared_expert_intermediate_size"),
        "moe_router_topk": network.get("num_experts_per_tok"),
        "vocab_size": network["vocab_size"],
        "seq_length": tokens,
    }
    return SimpleNamespace(
        is_hybrid_model=True,
        hybrid_override_pattern=pattern,
        gated_linear_unit=bool(network.get("gated")),
        make_vocab_size_divisible_by=1,
        tensor_model_parallel_size=1,
        **{name: exactly(value) for name, value in sizes.items()},
    )


def bridge_provider(given: Model, tokens: int) -> SimpleNamespace:
    """The sizes of a decoder under Megatron's names; of a vision-language model its decoder's, as its own providers
    of such models do. A gate's function is that of its providers."""
    from torch.nn import functional

    is_tower = isinstance(given, NetworkSizes) and given.model_type == "qwen2_vl"
    model = (
        given.decoder if is_tower and isinstance(given, NetworkSizes) else decoder_of(given, builder="Megatron-Bridge")
    )
    latent = {
        "q_lora_rank": exactly(model.q_lora_rank) if model.q_lora_rank else None,
        "kv_lora_rank": exactly(model.kv_lora_rank),
        "qk_head_dim": exactly(model.head_dim - model.qk_rope_head_dim),
        "qk_pos_emb_head_dim": exactly(model.qk_rope_head_dim),
        "v_head_dim": exactly(model.value_dim),
    }
    experts = {
        "num_moe_experts": model.num_experts or None,
        "moe_layer_freq": [0] * model.dense_layers + [1] * model.moe_layers,
        "moe_router_topk": exactly(model.num_experts_per_tok),
        "moe_ffn_hidden_size": exactly(model.moe_intermediate_size) if model.num_experts else None,
        "moe_shared_expert_intermediate_size": exactly(model.shared_experts * model.moe_intermediate_size) or None,
    }
    return SimpleNamespace(
        kv_channels=exactly(model.head_dim),
        num_attention_heads=exactly(model.num_attention_heads),
        num_query_groups=exactly(model.num_key_value_heads),
        hidden_size=exactly(model.hidden_size),
        num_layers=exactly(model.num_hidden_layers),
        ffn_hidden_size=exactly(model.intermediate_size),
        vocab_size=exactly(model.vocab_size),
        seq_length=exactly(tokens),
        mtp_num_layers=None,
        gated_linear_unit=bool(model.gated),
        activation_func=functional.silu if model.gated and model.model_type not in GELU_GATES else functional.gelu,
        multi_latent_attention=bool(model.kv_lora_rank),
        make_vocab_size_divisible_by=1,
        tensor_model_parallel_size=1,
        **experts,
        **latent,
    )


def litgpt(folder: Path) -> tuple[Formula, list[str]]:
    """On transformers' module of the same sizes, with the three sizes that the formula asks litgpt's for."""
    names: dict[str, Any] = {}
    path = folder / "litgpt" / "utils.py"
    names["num_parameters"] = cut(path, "num_parameters", {})
    names["flops_per_param"] = cut(path, "flops_per_param", names)
    estimate = cut(path, "estimate_flops", names)

    def formula(model: Model, tokens: int) -> Any:
        decoder, module = decoder_of(model, builder="litgpt"), hub_model(model)
        sizes = SimpleNamespace(n_layer=decoder.num_hidden_layers, n_embd=decoder.hidden_size)
        seen = SimpleNamespace(max_seq_length=tokens, config=sizes, parameters=module.parameters)
        return estimate(seen, training=True)

    return formula, ["litgpt/utils.py: only these functions are run", PARAMETERS]


def torchtitan(folder: Path) -> tuple[Formula, list[str]]:
    """On transformers' parameters, under the names that the formulas look for."""
    import torch

    path = folder / "torchtitan" / "models" / "utils.py"
    dense = cut(path, "get_dense_model_nparams_and_flops", {"nn": torch.nn})
    silent = SimpleNamespace(info=lambda _: None)
    sparse = cut(path, "get_moe_model_nparams_and_flops", {"logger": silent})

    def formula(given: Model, tokens: int) -> Any:
        model, module = decoder_of(given, builder="torchtitan"), hub_model(given)
        width, heads = model.head_dim + model.value_dim, model.num_attention_heads
        if model.num_experts:
            renamed = [(_titan_name(name), weight) for name, weight in module.named_parameters()]
            seen = SimpleNamespace(named_parameters=lambda: renamed)
            return tokens * sparse(_titan_config(model), seen, heads, width, tokens)[1]
        flat = torch.nn.Module()
        flat.add_module("tok_embeddings", module.get_input_embeddings())
        flat.add_module("rest", module)
        return tokens * dense(flat, model.num_hidden_layers, heads, width, tokens, bool(model.tied))[1]

    return formula, ["torchtitan/models/utils.py: only this function is run", PARAMETERS]


TITAN_NAMES = {
    "embed_tokens": "tok_embedding",
    "mlp.shared_experts": "moe.shared_experts",
    "mlp.gate.": "moe.router.",
    "mlp.router.": "moe.router.",
    "mlp.experts": "moe.routed_experts",
}
"""Part of a name of transformers' → torchtitan's. A dense layer's `mlp.gate_proj` keeps its own."""


def _titan_name(name: str) -> str:
    for part, titan in TITAN_NAMES.items():
        name = name.replace(part, titan)
    return name


def _titan_config(model: Architecture) -> SimpleNamespace:
    experts = SimpleNamespace(router=SimpleNamespace(top_k=model.num_experts_per_tok), num_experts=model.num_experts)
    dense = [SimpleNamespace(moe=None, attention=True)] * model.dense_layers
    layers = dense + [SimpleNamespace(moe=experts, attention=True)] * model.moe_layers
    return SimpleNamespace(layers=layers, enable_weight_tying=bool(model.tied))


def transformers(folder: Path) -> tuple[Formula, list[str]]:
    """Trainer's method, which `total_flos` sums, on a module on meta tensors."""
    from transformers import Trainer

    def formula(model: Model, tokens: int) -> Any:
        inputs: Any = sample(model, tokens)
        return Trainer.floating_point_ops(SimpleNamespace(model=hub_model(model)), inputs)  # type: ignore[arg-type]

    return formula, []


def lightning(folder: Path) -> tuple[Formula, list[str]]:
    """measure_flops of one forward and backward pass of the module on meta tensors."""
    from lightning.fabric.utilities.throughput import measure_flops

    def formula(model: Model, tokens: int) -> Any:
        module, given = module_and_arguments(model, tokens)
        return measure_flops(module, lambda: outputs(module(**given)), lambda values: values.sum())

    return by_periods(formula), [META, SCALED]


def llm_foundry(folder: Path) -> tuple[Formula, list[str]]:
    """Two methods of MPT's module, and its count of parameters, on transformers' parameters."""
    models = folder / "llmfoundry" / "models"
    names = {"ffns_with_megablocks": (), "_dtensor_safe_check_numel": lambda weight: weight.numel()}
    count = cut(models / "utils" / "mpt_param_count.py", "mpt_get_active_params", names)
    path = models / "mpt" / "modeling_mpt.py"
    attention = cut(path, "get_attention_flops", {}, inside="ComposerMPTCausalLM")
    whole = cut(path, "flops_per_batch", {"warnings": None, "Mapping": Mapping}, inside="ComposerMPTCausalLM")

    def formula(given: Model, tokens: int) -> Any:
        model = decoder_of(given, builder="LLM Foundry", adapts=False)
        if model.num_experts or model.model_type in ENCODERS:
            raise ValueError("LLM Foundry's experts are counted by megablocks, and it has no encoder")
        seen = _mosaic(hub_model(model), model)
        seen.n_active_params = count(seen)
        seen.get_attention_flops = lambda length: attention(seen, length)
        return whole(seen, {"input_ids": SimpleNamespace(shape=(1, tokens))})

    shims = ["llmfoundry/models/mpt/modeling_mpt.py and utils/mpt_param_count.py: only these functions are run"]
    return formula, [*shims, PARAMETERS]


def _mosaic(module: Any, model: Architecture) -> SimpleNamespace:
    """What the methods ask of MPT's module."""
    sizes = SimpleNamespace(block_overrides=None, n_layers=model.num_hidden_layers, d_model=model.hidden_size)
    transformer = SimpleNamespace(
        config=SimpleNamespace(tie_word_embeddings=bool(model.tied)), wte=module.get_input_embeddings()
    )
    return SimpleNamespace(
        config=SimpleNamespace(ffn_config={"ffn_type": "mptmlp"}),
        model=SimpleNamespace(config=sizes, transformer=transformer),
        parameters=module.parameters,
    )


def composer(folder: Path, foundry: Path) -> tuple[Formula, list[str]]:
    """One method of the monitor, which asks the model of LLM Foundry's package. foundry: the folder of that one."""
    import torch

    asked, shims = llm_foundry(foundry)
    names = {
        "dist": SimpleNamespace(get_world_size=lambda: 1, all_reduce=lambda *_, **__: None),
        "ComposerModel": BatchModel,
        "Callable": Callable,
        "torch": torch,
    }
    batch_end = cut(folder / "composer" / "callbacks" / "speed_monitor.py", "batch_end", names, inside="SpeedMonitor")
    own = "composer/callbacks/speed_monitor.py: only this method is run, of two batches a second apart on one device"
    return lambda model, tokens: speed_monitor(batch_end, asked(model, tokens)), [own, *shims]


OPENERS: dict[str, Callable[..., tuple[Formula, list[str]]]] = {
    "verl": verl,
    "veomni": veomni,
    "nemo_automodel": nemo_automodel,
    "megatron_bridge": megatron_bridge,
    "trl": trl,
    "litgpt": litgpt,
    "torchtitan": torchtitan,
    "transformers": transformers,
    "lightning": lightning,
    "llm_foundry": llm_foundry,
    "composer": composer,
    "deepspeed": deepspeed,
    "calflops": calflops,
    "maxtext": maxtext,
}
"""Framework → how its formula is reached: the folder of its package, and of the one that it needs → (formula, what
was replaced)."""
