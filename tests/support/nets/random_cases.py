"""Nets that the random ones showed to be counted wrong once, and the least net of each rule, for every run."""

from __future__ import annotations

LINEAR, BIAS = ("linear", 0, 0, ()), ("only_bias", 0, 0, ())


def checkpoint(*body, variant=0, which=0):
    """A step that computes its body again, not reentrant."""
    return ("checkpoint", variant, which, (body,))


def reentrant(*body, variant=0):
    """The same, reentrant."""
    return ("reentrant", variant, 0, (body,))


CASES = {
    "a checkpoint in a checkpoint": [checkpoint(LINEAR, checkpoint(LINEAR), LINEAR)],
    "three checkpoints": [checkpoint(checkpoint(checkpoint(LINEAR), LINEAR), LINEAR)],
    "without early stop": [checkpoint(LINEAR, checkpoint(LINEAR, variant=1), variant=1)],
    "without the state of random numbers": [checkpoint(LINEAR, checkpoint(LINEAR, variant=2), variant=2)],
    "reentrant in one that is not": [LINEAR, checkpoint(LINEAR, reentrant(LINEAR))],
    "not reentrant in one that is": [LINEAR, reentrant(LINEAR, checkpoint(LINEAR))],
    "reentrant in reentrant": [LINEAR, reentrant(LINEAR, reentrant(LINEAR), LINEAR)],
    "selective": [checkpoint(LINEAR, ("matmul", 0, 0, ()), LINEAR, variant=4)],
    "selective in a checkpoint": [checkpoint(LINEAR, checkpoint(LINEAR, ("matmul", 0, 0, ()), variant=4))],
    "the product of a frozen layer computed again": [checkpoint(("frozen", 0, 0, ()), ("act", 2, 0, ()), BIAS)],
    "only a number saved last": [("convolution", 0, 0, ()), checkpoint(LINEAR, ("in_place", 0, 0, ()))],
    "a function of its own in a checkpoint": [LINEAR, checkpoint(("function", 1, 0, ()), ("function", 0, 0, ()))],
    "no gradient back to a reentrant one": [LINEAR, reentrant(LINEAR), reentrant(("detached", 0, 0, ()))],
    "a gradient in a checkpoint": [LINEAR, reentrant(("inner_gradient", 1, 0, ()))],
    "without gradients in a checkpoint": [LINEAR, reentrant(("no_grad", 0, 0, ())), checkpoint(("no_grad", 0, 0, ()))],
    "blocks, each a checkpoint": [checkpoint(("shared", 0, 0, ())), checkpoint(("shared", 0, 0, ()))],
    **{f"a hook on a gradient, {v}": [LINEAR, ("hook", v, 0, ()), LINEAR] for v in range(6)},
    **{f"a layer with a hook, {v}": [LINEAR, ("hooked_module", v, 0, ()), LINEAR] for v in range(6)},
    "a hook in a checkpoint": [LINEAR, checkpoint(LINEAR, ("hook", 0, 0, ()), LINEAR)],
    "calculated weights": [("parametrized", v, 0, ()) for v in range(4)],
}
"""Name → the steps of a net (`random_nets.py`)."""
