"""transformers' models as workloads: built from a configuration with random weights, fed by what `forward` takes.

transformers is optional (requirements-models.txt). The class is the first of the configuration's `architectures`, else
the bare model of its type. Weights are float32 and the attention is transformers' default; keys and values are not
kept (`use_cache` off), as in training. Nothing is downloaded, and nothing is learned: the loss is the mean of outputs.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from results.errors import Unavailable
from results.kernel import free_bytes
from workloads.catalogue.base import Batch, Workload, mean_loss
from workloads.catalogue.model_names import Shape, Spec, nearest, read_config, require
from workloads.sources.transformers_inputs import default_shapes
from workloads.training.building import building, without_values
from workloads.training.inputs import draw, positional, takes

Feed = Callable[[int | None], Sequence[Shape]]
"""Length of a text, or None for the default → the inputs."""


def get(spec: Spec, shapes: Sequence[Shape] = (), /, **hyper: int) -> Workload:
    """The workload of hf:CONFIG. hyper: seq, the length of texts. shapes: inputs in place of the configuration's own.

    Raises ValueError for a configuration or architecture that transformers does not know, or whose inputs it cannot
    tell; Unavailable without transformers.
    """
    require("transformers")
    config = _config(spec)
    model_class = _class(spec, config)
    feed: Feed = (lambda _seq: shapes) if shapes else partial(default_shapes, spec.text, model_class, config)
    texts = [] if shapes else [shape for shape in feed(hyper.get("seq")) if shape.name.endswith("input_ids")]
    sizes = {"seq": texts[-1].sizes[0]} if texts else {}
    for name, value in hyper.items():
        if name not in sizes:
            raise ValueError(f"{spec.text} has no {name} here; other sizes are in its config")
        if value < 1:
            raise ValueError(f"{name} of {spec.text}: expected 1 or more, got {value}")
    return Workload(
        name=spec.text,
        task="general",
        hyper=sizes,
        build=partial(_build, spec.text, model_class, config),
        batch=partial(_batch, takes(model_class), feed),
        loss=mean_loss,
        items=lambda _hyper, batch_size: batch_size,
        item="sample",
        source=f"transformers; {model_class.__name__}",
    )


def _config(spec: Spec) -> Any:
    """The configuration object; of a bare model type, its defaults."""
    from transformers import CONFIG_MAPPING, AutoConfig

    given = dict(read_config(spec) or {"model_type": spec.target})
    kind = given.pop("model_type", None) or _type_of(spec, given.get("architectures"))
    if kind not in CONFIG_MAPPING:
        of_hub = "" if Path(spec.target).exists() else "; a hub's model needs its config.json: nothing is downloaded"
        raise ValueError(f"transformers has no model type {kind!r}{nearest(kind, CONFIG_MAPPING)}{of_hub}")
    with building(spec.text), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old names of settings
        config = AutoConfig.for_model(kind, **given)
    for part in (config, *(getattr(config, name, None) for name in config.sub_configs)):
        if part is not None and hasattr(part, "use_cache"):
            part.use_cache = False
    return config


def _type_of(spec: Spec, architectures: Sequence[str] | None) -> str:
    """The model type of a configuration that names its class alone. Raises ValueError for one that names neither."""
    if not architectures:
        raise ValueError(f"{spec.text}: expected a model_type or architectures, got neither")
    return str(_named(spec, architectures[0]).config_class.model_type)


def _class(spec: Spec, config: Any) -> Any:
    """The class to build."""
    if config.architectures:
        return _named(spec, config.architectures[0])
    from transformers import AutoModel

    try:
        found = AutoModel._model_mapping[type(config)]
    except KeyError as fault:
        raise ValueError(f"{spec.text}: {config.model_type} has no bare model: name its architectures") from fault
    return found[0] if isinstance(found, tuple) else found  # several: the first is the whole one


def _named(spec: Spec, name: str) -> Any:
    import transformers

    found = getattr(transformers, name, None)
    if not (isinstance(found, type) and issubclass(found, torch.nn.Module)):
        names = (known for known in dir(transformers) if known[0].isupper() and not known.endswith("Config"))
        raise ValueError(f"{spec.text}: transformers has no model {name!r}{nearest(name, names)}")
    return found


def _build(text: str, model_class: Any, config: Any, seq: int = 0) -> torch.nn.Module:
    """In training mode, on the current default device. Raises Unavailable if its weights are more than memory holds."""
    with building(text), warnings.catch_warnings(), without_values():
        warnings.simplefilter("ignore")  # of settings in a config, which this class does not use
        if torch.get_default_device().type != "meta":
            _check_memory(text, model_class, config)
        return model_class(config).train().to(torch.get_default_device())  # type: ignore[no-any-return]


def _check_memory(text: str, model_class: Any, config: Any) -> None:
    """Counts the weights of a model without any, and compares with what this machine has left."""
    available = free_bytes()
    if available is None:
        return
    with torch.device("meta"), without_values():
        needed = sum(parameter.nbytes for parameter in model_class(config).parameters())
    if 2 * needed > available:
        raise Unavailable(
            f"{text}: weights and gradients are {2 * needed / 1e9:.1f} GB, and {available / 1e9:.1f} GB are free: "
            "make its config smaller (fewer layers)"
        )


def _batch(
    parameters: Sequence[inspect.Parameter],
    feed: Feed,
    hyper: Mapping[str, int],
    size: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> Batch:
    shapes = feed(hyper.get("seq"))
    plain = [draw(shape, size, device, generator) for shape in shapes if not shape.name]
    named = {shape.name: draw(shape, size, device, generator) for shape in shapes if shape.name}
    return Batch(positional(parameters, plain, named), None)
