"""Makes workloads of timm's and transformers' models, with random weights and random data.

`timm_workload` and `transformers_workload` take a parsed name, and return a `Workload`. Both libraries are optional
(requirements-models.txt). Nothing is downloaded. A timm model has the input size of its configuration. A tag after a
dot (`.augreg_in1k`) names published weights, and here only changes that size. The loss of a timm model is cross entropy
of uniform labels, or, without classes, the mean of its features. A transformers model is the first of the
configuration's `architectures`, else the bare model of its type. It has float32 weights, the default attention and no
cache. Its loss is the mean of the outputs. SHAPES has the known kinds of input: uniform token ids, else normal noise.
"""

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from workloads.any_model import building, draw, forward_parameters, positional
from workloads.catalogue.base import Batch, Workload, mean_loss
from workloads.catalogue.catalogue import with_sizes
from workloads.catalogue.model_names import Shape, Spec, nearest, read_config, require

Feed = Callable[[int | None], Sequence[Shape]]
"""Length of a text, or None for the default → the inputs."""


def transformers_workload(spec: Spec, shapes: Sequence[Shape] = (), /, **hyper: int) -> Workload:
    """Return the workload of hf:CONFIG. hyper: seq, the length of texts. shapes: inputs in place of `default_shapes`.

    Raises ValueError for a configuration or architecture that transformers does not know, or whose inputs have no
    default shapes; Unavailable without transformers.
    """
    require("transformers")
    config = _config(spec)
    model_class = _class(spec, config)
    feed: Feed = (lambda _seq: shapes) if shapes else partial(default_shapes, spec.text, model_class, config)
    texts = [] if shapes else [shape for shape in feed(hyper.get("seq")) if shape.name.endswith("input_ids")]
    sizes = {"seq": texts[-1].sizes[0]} if texts else {}
    return Workload(
        name=spec.text,
        task="general",
        hyper=with_sizes(spec.text, sizes, hyper),
        build=partial(_build, spec.text, model_class, config),
        batch=partial(_batch, forward_parameters(model_class), feed),
        loss=mean_loss,
        source=f"transformers; {model_class.__name__}",
    )


def _config(spec: Spec) -> Any:
    """Return the configuration object; for a bare model type, that of its defaults."""
    from transformers import CONFIG_MAPPING, AutoConfig

    values = dict(read_config(spec) or {"model_type": spec.target})
    kind = values.pop("model_type", None)
    if not kind:
        kind = str(_named(spec, (values.get("architectures") or [""])[0]).config_class.model_type)
    if kind not in CONFIG_MAPPING:
        of_hub = "" if Path(spec.target).exists() else "; a hub's model needs its config.json: nothing is downloaded"
        raise ValueError(f"transformers has no model type {kind!r}{nearest(kind, CONFIG_MAPPING)}{of_hub}")
    with building(spec.text), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old names of settings
        config = AutoConfig.for_model(kind, **values)
    for part in (config, *(getattr(config, name, None) for name in config.sub_configs)):
        if part is not None and hasattr(part, "use_cache"):
            part.use_cache = False
    return config


def _class(spec: Spec, config: Any) -> Any:
    """Return the class to build."""
    if config.architectures:
        return _named(spec, config.architectures[0])
    from transformers import AutoModel

    try:
        model_class = AutoModel._model_mapping[type(config)]
    except KeyError as fault:
        raise ValueError(f"{spec.text}: {config.model_type} has no bare model: name its architectures") from fault
    return model_class[0] if isinstance(model_class, tuple) else model_class  # several: the first is the whole one


def _named(spec: Spec, name: str) -> Any:
    import transformers

    model_class = getattr(transformers, name, None)
    if not (isinstance(model_class, type) and issubclass(model_class, torch.nn.Module)):
        names = (known for known in dir(transformers) if known[0].isupper() and not known.endswith("Config"))
        raise ValueError(f"{spec.text}: transformers has no model {name!r}{nearest(name, names)}")
    return model_class


def _build(text: str, model_class: Any, config: Any, seq: int = 0) -> torch.nn.Module:
    """Build in training mode, on the current default device."""
    with building(text), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings in a configuration that this class does not use
        return model_class(config).train().to(torch.get_default_device())  # type: ignore[no-any-return]


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


SEQ = 128
"""Tokens of a text, unless the configuration allows fewer or --size seq=N is given."""


COMPARING = ("align", "altclip", "blip", "chinese_clip", "clip", "clipseg", "flava", "groupvit", "siglip", "vilt")
"""Model types whose whole model takes a text and an image; their main input is only the text."""

LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_source_positions")
"""Names of the longest text in configurations, in order of preference."""


def default_shapes(text: str, model_class: Any, config: Any, seq: int | None = None) -> tuple[Shape, ...]:
    """Return the shapes of a model's inputs, with their names. text: the requested name, for messages. seq: length of
    texts; None: SEQ or less. Raises ValueError for an input whose shape is not known."""
    parameters = inspect.signature(model_class.forward).parameters
    names = [model_class.main_input_name]
    if config.model_type in COMPARING and {"input_ids", "pixel_values"} <= set(parameters):
        names = ["input_ids", "pixel_values"]
    if getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in parameters:
        names.append("decoder_input_ids")
    unknown = [name for name in names if name not in SHAPES]
    if unknown:
        raise ValueError(
            f"{text}: {model_class.__name__} takes {unknown[0]}, which has no default shape here: "
            f"give it, such as --input {unknown[0]}=128x64"
        )
    try:
        return tuple(SHAPES[name](config, seq) for name in names)
    except (AttributeError, KeyError, TypeError) as fault:
        raise ValueError(
            f"{text}: the config does not give the shape of {' and '.join(names)} ({fault}): "
            f"give it, such as --input {names[0]}=128:int64:1000"
        ) from fault


def _tokens(config: Any, seq: int | None, name: str = "input_ids", decoder: bool = False) -> Shape:
    text = getattr(config, "text_config", None) or config.get_text_config(decoder=decoder)
    longest = next((length for length in (getattr(text, key, None) or 0 for key in LENGTHS) if length > 0), SEQ)
    return Shape((seq or min(SEQ, longest),), "int64", text.vocab_size, name)


def _pixels(config: Any, seq: int | None) -> Shape:
    """Return channels × height × width, with frames in front for a video."""
    seeing = getattr(config, "vision_config", None) or getattr(config, "backbone_config", None) or config
    size = getattr(seeing, "image_size", None) or 224
    if isinstance(size, Mapping):
        size = (size["height"], size["width"])
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = getattr(seeing, "num_frames", None)
    return Shape(
        (*([frames] if frames else []), getattr(seeing, "num_channels", 3), height, width), name="pixel_values"
    )


def _sound(config: Any, seq: int | None) -> Shape:
    """Return one second of samples; a spectrogram of max_length × num_mel_bins where the model takes one (AST)."""
    if getattr(config, "num_mel_bins", None) and getattr(config, "max_length", None):
        return Shape((config.max_length, config.num_mel_bins), name="input_values")
    return Shape((16_000,), name="input_values")


def _features(config: Any, seq: int | None) -> Shape:
    """Return frames × features (Speech2Text, Wav2Vec2-BERT), or Whisper's features × frames, two for each source
    position."""
    wide = getattr(config, "input_feat_per_channel", None) or getattr(config, "feature_projection_input_dim", None)
    if wide:
        return Shape((SEQ, wide), name="input_features")
    return Shape((config.num_mel_bins, 2 * config.max_source_positions), name="input_features")


SHAPES: Mapping[str, Callable[[Any, int | None], Shape]] = {
    "input_ids": _tokens,
    "decoder_input_ids": partial(_tokens, name="decoder_input_ids", decoder=True),
    "pixel_values": _pixels,
    "input_values": _sound,
    "input_features": _features,
}
"""Name of an input of `forward` → its shape, by the configuration and the requested length."""


def timm_workload(spec: Spec, shapes: Sequence[Shape] = (), /, **hyper: int) -> Workload:
    """Return the workload of timm:NAME. hyper: image_size (height and width) and num_classes, in place of the model's.

    shapes: of one image, in place of image_size. Raises ValueError for a name that timm does not have, Unavailable
    without timm.
    """
    require("timm")
    config = _timm_config(spec)
    own = tuple(config.input_size)
    sizes = {"image_size": own[-1]} | ({"num_classes": config.num_classes} if config.num_classes else {})
    if shapes:
        if len(shapes) != 1 or len(shapes[0].sizes) != 3 or shapes[0].dtype != "float32" or shapes[0].name:
            raise ValueError(f"{spec.text} takes one image, such as --input 3x224x224")
        own = shapes[0].sizes
        sizes.pop("image_size")
    return Workload(
        name=spec.text,
        task="classification",
        hyper=with_sizes(spec.text, sizes, hyper),
        build=partial(_timm_build, spec.target, own, config),
        batch=partial(_images, own),
        loss=cross_entropy if config.num_classes else mean_loss,
        item="image",
        source=f"timm; {spec.target}",
    )


def _timm_config(spec: Spec) -> Any:
    """Return timm's configuration of the model, with its input size. Raises ValueError with the nearest name or tag."""
    import timm

    name, _, tag = spec.target.partition(".")
    if not timm.is_model(name):
        known = [*timm.list_models(), *timm.list_models(include_tags=True)]
        raise ValueError(f"timm has no {spec.target!r}{nearest(spec.target, known)}")
    try:
        config = timm.get_pretrained_cfg(spec.target)
    except RuntimeError as fault:
        tags = timm.list_models(f"{name}.*", include_tags=True)
        raise ValueError(f"timm's {name} has no tag {tag!r}{nearest(spec.target, tags)}") from fault
    return config or timm.models.PretrainedCfg()


def _sized(own: tuple[int, ...], hyper: Mapping[str, int]) -> tuple[int, ...]:
    """Return channels, height and width: square, where a size is given."""
    return (own[0], hyper["image_size"], hyper["image_size"]) if "image_size" in hyper else own


def _timm_build(name: str, own: tuple[int, ...], config: Any, **hyper: int) -> torch.nn.Module:
    """Build in training mode, on the current default device. Raises ValueError for a size for which it cannot be built.

    The input size is passed to the architecture if the architecture depends on it and the configuration has another.
    """
    import timm

    options: dict[str, Any] = {"pretrained": False}
    size = _sized(own, hyper)
    if "num_classes" in hyper:
        options["num_classes"] = hyper["num_classes"]
    if config.fixed_input_size and size[1:] != tuple(config.input_size)[1:]:
        options["img_size"] = size[1:]
    what = f"timm:{name} for images of {'x'.join(map(str, size))}"
    with building(what), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that timm has renamed
        return timm.create_model(name, **options).train().to(torch.get_default_device())


def _images(
    own: tuple[int, ...],
    hyper: Mapping[str, int],
    size: int,
    device: torch.device,
    generator: torch.Generator | None,
) -> Batch:
    images = draw(Shape(_sized(own, hyper)), size, device, generator)
    labels = Shape((), "int64", hyper.get("num_classes", 1))
    return Batch((images,), draw(labels, size, device, generator))
