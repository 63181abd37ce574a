"""Which models need not be kept: those whose code is known to change nothing of its modules, and that are on meta.

Their modules are looked at once, for likenesses; neither their attributes nor their gradients are noted or put back.
What is known of code is in `measure/fast_count/module_purity.py`; not claimed of any model that has a hook, a function
of somebody else's among its settings, or a tensor on another device.
"""

from __future__ import annotations

import torch

from measure.fast_count.block_likeness import Likeness
from measure.model.untouched import Parts, modules, parts_on_meta


def prepared(model: torch.nn.Module, train: bool | None, known_code: bool) -> tuple[Parts, Likeness | None]:
    """The model on meta, with what of it is to be kept; its likeness, if that is known as the model will run.

    train: the mode it is to run in; None: as each module is. known_code: whether nothing but the model's own code will
    run with it, no loss of the caller's, no hooks on all modules.
    """
    first = next(model.parameters(), None)
    alike = Likeness(model) if known_code and (first is None or first.is_meta) else None
    if alike is None or not (alike.fixed and alike.on_meta):
        parts = parts_on_meta(model)
        return parts, alike if train is None and parts.every[0] is model else None
    if train is None or alike.modes == {train}:
        return Parts([model], [], settled=True), alike
    return Parts(modules(model), [], settled=True), None
