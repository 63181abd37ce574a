"""The formulas, each called as its package's own code calls it. Runs in the process of `child.py` only.

A package is read from a folder that holds it and not what it depends on. Its `__init__` files, which import most of a
training framework, are not run, and modules that the formula does not use are replaced by empty ones; both are named
in the answer (`shims`), and nothing else is replaced.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from analysis.audit import Architecture, configuration
from measure.audit.exact_numbers import Exact, exact_view, exactly

Formula = Callable[[Architecture, int], Any]
"""(model, tokens) → FLOP of a training step of one sequence, as the framework says."""


PEAK = "the device's peak, which it asks for beside the count, is not looked up"


PARAMETERS = "parameters of transformers' module of the same sizes"


def bare(folder: Path, *names: str) -> list[str]:
    """Packages whose `__init__` is not run; what to say of it."""
    for name in names:
        module = ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = module
    return [f"{name}/__init__.py not run" for name in names]


def empty(**modules: dict[str, Any]) -> list[str]:
    """Modules with the given names and nothing else (`__` for a dot); what to say of it."""
    for name, members in modules.items():
        module = ModuleType(name.replace("__", "."))
        vars(module).update(members)
        sys.modules[module.__name__] = module
    return [f"{name.replace('__', '.')} replaced" for name in modules]


def hub_config(model: Architecture) -> Any:
    """transformers' configuration of the model."""
    from transformers import AutoConfig

    return AutoConfig.for_model(model.model_type, **configuration(model))


def hub_model(model: Architecture) -> Any:
    """transformers' module with a head, on meta tensors."""
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    maker = AutoModelForMaskedLM if model.model_type == "bert" else AutoModelForCausalLM
    with torch.device("meta"):
        return maker.from_config(hub_config(model))  # type: ignore[no-untyped-call]


def verl(folder: Path) -> tuple[Formula, list[str]]:
    """Its time is in TFLOP/s for a given time; a time of 10⁻¹² s gives FLOP."""
    shims = bare(folder, "verl", "verl.utils")
    counter: Any = importlib.import_module("verl.utils.flops_counter")
    counter.get_device_flops = lambda: 0

    def formula(model: Architecture, tokens: int) -> Any:
        seen = counter.FlopsCounter(exact_view(hub_config(model)))
        return seen.estimate_flops([Exact(tokens)], Exact(1, 10**12))[0]

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

    def formula(model: Architecture, tokens: int) -> Any:
        seen = counter.VeomniFlopsCounter(exact_view(hub_config(model)))
        return seen.estimate_flops([Exact(tokens)], Exact(1, 10**12))[0]

    return formula, [*shims, PEAK]


def nemo_automodel(folder: Path) -> tuple[Formula, list[str]]:
    names = ("nemo_automodel", "nemo_automodel.components", "nemo_automodel.components.utils")
    shims = bare(folder, *names)
    utils = importlib.import_module("nemo_automodel.components.utils.flops_utils")

    def formula(model: Architecture, tokens: int) -> Any:
        config = hub_config(model)
        chosen = utils.get_flops_formula_for_hf_config(config)
        return chosen(exact_view(config), gbs=Exact(1), seq_len=Exact(tokens))

    return formula, shims


def trl(folder: Path) -> tuple[Formula, list[str]]:
    """The function is taken out of its module, whose other functions import a trainer's dependencies."""
    import transformers
    from packaging.version import Version

    names = {"transformers": transformers, "Version": Version}
    function = cut(folder / "trl" / "trainer" / "utils.py", "compute_flops_per_token", names)

    def formula(model: Architecture, tokens: int) -> Any:
        return tokens * function(hub_config(model), tokens)

    return formula, ["trl/trainer/utils.py: only this function is run"]


def cut(path: Path, name: str, names: dict[str, Any]) -> Any:
    """One function of a module, compiled from its source as it is, with the names that it uses."""
    import ast

    parsed = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in parsed.body if isinstance(node, ast.FunctionDef) and node.name == name]
    future = ast.parse("from __future__ import annotations").body
    code = compile(ast.Module(body=[*future, *found], type_ignores=[]), str(path), "exec")
    space = dict(names)
    exec(code, space)
    return space[name]


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

    def formula(model: Architecture, tokens: int) -> Any:
        config = SimpleNamespace(model=bridge_provider(model, tokens), peft=None)
        return module.num_floating_point_operations(config, Exact(1))

    return formula, [*shims, "the vocabulary is not padded"]


def bridge_provider(model: Architecture, tokens: int) -> SimpleNamespace:
    """The sizes under Megatron's names."""
    from torch.nn import functional

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
        activation_func=functional.silu if model.gated else functional.gelu,
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

    def formula(model: Architecture, tokens: int) -> Any:
        module = hub_model(model)
        sizes = SimpleNamespace(n_layer=model.num_hidden_layers, n_embd=model.hidden_size)
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

    def formula(model: Architecture, tokens: int) -> Any:
        module = hub_model(model)
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

    def formula(model: Architecture, tokens: int) -> Any:
        import torch

        inputs = {"input_ids": torch.empty(1, tokens, dtype=torch.long, device="meta")}
        return Trainer.floating_point_ops(SimpleNamespace(model=hub_model(model)), inputs)  # type: ignore[arg-type]

    return formula, []


def lightning(folder: Path) -> tuple[Formula, list[str]]:
    """measure_flops of one forward and backward pass of the module on meta tensors."""
    from lightning.fabric.utilities.throughput import measure_flops

    def formula(model: Architecture, tokens: int) -> Any:
        import torch

        module = hub_model(model).train()
        words = torch.zeros(1, tokens, dtype=torch.long, device="meta")
        seen = torch.ones(1, 1, tokens, tokens, dtype=torch.bool, device="meta")
        return measure_flops(module, lambda: module(words, attention_mask=seen).logits, lambda logits: logits.sum())

    return formula, ["transformers' module on meta tensors, with a mask of ones, whose values are not read"]


OPENERS: dict[str, Callable[[Path], tuple[Formula, list[str]]]] = {
    "verl": verl,
    "veomni": veomni,
    "nemo_automodel": nemo_automodel,
    "megatron_bridge": megatron_bridge,
    "trl": trl,
    "litgpt": litgpt,
    "torchtitan": torchtitan,
    "transformers": transformers,
    "lightning": lightning,
}
"""Framework → how its formula is reached: the folder of its package → (formula, what was replaced)."""
