"""What a transformers model is fed by default: shapes read from its configuration, a row for each kind of input.

Texts are uniform token ids, without padding; images, sound and features are normal noise. A kind of input that no row
knows is refused with what to type; it does not guess.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from workloads.catalogue.model_names import Shape

SEQ = 128
"""Tokens of a text, unless the configuration allows fewer or --size seq=N says otherwise."""

SAMPLES = 16_000
"""Of sound: one second."""

COMPARING = ("align", "altclip", "blip", "chinese_clip", "clip", "clipseg", "flava", "groupvit", "siglip", "vilt")
"""Model types whose whole model takes a text and an image; their main input is the text alone."""

LENGTHS = ("max_position_embeddings", "n_positions", "max_target_positions", "max_source_positions")
"""Names that configurations have for the longest text, in the order they are believed."""


def default_shapes(text: str, model_class: Any, config: Any, seq: int | None = None) -> tuple[Shape, ...]:
    """The inputs of a model by name. text: what was asked for, for messages. Raises ValueError for an unknown kind."""
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
            f"say it, such as --input {unknown[0]}=128x64"
        )
    try:
        return tuple(SHAPES[name](config, seq) for name in names)
    except (AttributeError, KeyError, TypeError) as fault:
        raise ValueError(
            f"{text}: the config does not give the shape of {' and '.join(names)} ({fault}): "
            f"say it, such as --input {names[0]}=128:int64:1000"
        ) from fault


def _tokens(config: Any, seq: int | None, name: str = "input_ids", decoder: bool = False) -> Shape:
    text = getattr(config, "text_config", None) or config.get_text_config(decoder=decoder)
    longest = next((length for length in (getattr(text, key, None) or 0 for key in LENGTHS) if length > 0), SEQ)
    return Shape((seq or min(SEQ, longest),), "int64", text.vocab_size, name)


def _decoder_tokens(config: Any, seq: int | None) -> Shape:
    return _tokens(config, seq, "decoder_input_ids", decoder=True)


def _pixels(config: Any, seq: int | None) -> Shape:
    """Channels × height × width, with frames in front for a video."""
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
    """One second of samples; a spectrogram of max_length × num_mel_bins where the model takes one (AST)."""
    if getattr(config, "num_mel_bins", None) and getattr(config, "max_length", None):
        return Shape((config.max_length, config.num_mel_bins), name="input_values")
    return Shape((SAMPLES,), name="input_values")


def _features(config: Any, seq: int | None) -> Shape:
    """Frames × features (Speech2Text, Wav2Vec2-BERT), or Whisper's features × frames, two for each source position."""
    wide = getattr(config, "input_feat_per_channel", None) or getattr(config, "feature_projection_input_dim", None)
    if wide:
        return Shape((SEQ, wide), name="input_features")
    return Shape((config.num_mel_bins, 2 * config.max_source_positions), name="input_features")


SHAPES: Mapping[str, Callable[[Any, int | None], Shape]] = {
    "input_ids": _tokens,
    "decoder_input_ids": _decoder_tokens,
    "pixel_values": _pixels,
    "input_values": _sound,
    "input_features": _features,
}
"""Name of an input of `forward` → its shape, by the configuration and the length that was asked for."""
