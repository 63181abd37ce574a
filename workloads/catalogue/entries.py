"""What is known of one workload by name, before anything is built. No torch: the catalogue imports in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Limit = tuple[str, str, int | str]

RELATIONS: Mapping[str, Callable[[int, int], bool]] = {
    "at least": lambda size, bound: size >= bound,
    "at most": lambda size, bound: size <= bound,
    "a multiple of": lambda size, bound: size % bound == 0,
}


@dataclass(frozen=True)
class Entry:
    """What is known of one workload by name.

    task: classification, segmentation, detection, video, flow, language, translation, speech, embedding, synthetic, or
    one of `workloads/catalogue/fathom_sizes.py`.
    hyper: default of every size it takes; image_size is height and width in pixels, frames the length of a clip, width
    the channels of a residual network's first stage.
    source: where architecture and defaults are defined.
    limits: (size, relation of RELATIONS, a number or another size) that hold, or it cannot be built.
    smallest_image, smallest_frames: anything below fails.
    image_step: the sizes it promises are the multiples of this one.
    fixed: image_size and frames can only be the defaults.
    single_from: smallest image that trains in a batch of one; below, batch normalisation meets a single value per
    channel and refuses. None: no image is large enough.
    batch_size: the one of its source, 0 where it has none. optimizer: what it is trained with there, in words; "" where
    the workload brings none of its own. variant: as_coded or as_paper, where a paper and its code are two models; or
    fused, where recurrent layers are one operation.
    """

    task: str
    hyper: Mapping[str, int]
    source: str
    smallest_image: int = 1
    image_step: int = 1
    fixed: bool = False
    single_from: int | None = 1
    smallest_frames: int = 1
    limits: tuple[Limit, ...] = ()
    batch_size: int = 0
    optimizer: str = ""
    variant: str = ""
