"""Streams of values of equal sides: from recorded comparisons by exchange of labels, and simulated ones.

Every stream is of sides that are equal by construction. Pure; nothing here is measured.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence

BLOCK = 3
"""Neighbouring values that stay together, so that what they share is kept."""

SCATTER = 0.05
"""Of a simulated stream's values."""

LONG_TAIL_RATIO, LONG_TAIL_FACTOR = 0.1, 20.0

Stream = Sequence[float]
Noise = Callable[[random.Random], float]


def exchanged(streams: Sequence[Stream], number: int, length: int, seed: int = 0) -> list[list[float]]:
    """Streams of blocks of neighbouring values, with A and B exchanged in half of the blocks.

    Any block of a recorded stream is drawn with the same chance, so that a comparison that ended early has no more
    weight than its values. A block whose labels are exchanged has the opposite sign, and begins at a pair of the
    opposite order (every other pair begins with B): an effect of the side that begins stays with that side, and one of
    A or B has either sign in half of the blocks. Raises ValueError where no stream is long enough.
    """
    chance = random.Random(seed)
    places = [(stream, first) for stream in streams for first in range(len(stream) - BLOCK + 1)]
    by_order = [[place for place in places if place[1] % 2 == order] for order in (0, 1)]
    if not all(by_order):
        raise ValueError(f"expected a recorded stream of {BLOCK + 1} values or more")
    found = []
    for _ in range(number):
        values: list[float] = []
        while len(values) < length:
            swapped = chance.random() < 0.5
            stream, first = chance.choice(by_order[(len(values) + swapped) % 2])
            values += [-value if swapped else value for value in stream[first : first + BLOCK]]
        found.append(values[:length])
    return found


def simulated(name: str, number: int, length: int, seed: int = 0) -> list[list[float]]:
    """Streams of one of SIMULATED."""
    chance = random.Random(seed)
    noise, correlation, order_ratio = SIMULATED[name]
    found = []
    for _ in range(number):
        values = [noise(chance)]
        while len(values) < length:
            values.append(correlation * values[-1] + math.sqrt(1 - correlation**2) * noise(chance))
        found.append([SCATTER * value + order_ratio * (-1) ** pair for pair, value in enumerate(values)])
    return found


def _normal(chance: random.Random) -> float:
    return chance.gauss(0.0, 1.0)


def _student(chance: random.Random) -> float:
    """Student's t with two degrees of freedom, whose variance is infinite, by the inverse of its distribution."""
    p = 2 * chance.uniform(1e-12, 1 - 1e-12) - 1
    return p * math.sqrt(2 / (1 - p * p))


def _cauchy(chance: random.Random) -> float:
    return math.tan(math.pi * (chance.random() - 0.5))


def _bursts(chance: random.Random) -> float:
    far = LONG_TAIL_FACTOR if chance.random() < LONG_TAIL_RATIO else 1.0
    return far * chance.gauss(0.0, 1.0)


SIMULATED: Mapping[str, tuple[Noise, float, float]] = {
    "normal, independent": (_normal, 0.0, 0.0),
    "normal, correlation 0.2": (_normal, 0.2, 0.0),
    "normal, correlation 0.4": (_normal, 0.4, 0.0),
    "normal, correlation 0.6": (_normal, 0.6, 0.0),
    "Student's t, 2 degrees": (_student, 0.0, 0.0),
    "Student's t, 2 degrees, correlation 0.4": (_student, 0.4, 0.0),
    "Cauchy": (_cauchy, 0.0, 0.0),
    "one in ten 20 times as far": (_bursts, 0.0, 0.0),
    "one in ten 20 times as far, correlation 0.4": (_bursts, 0.4, 0.0),
    "first side 3 % slower": (_normal, 0.0, 0.03),
    "first side 3 % slower, correlation 0.4": (_normal, 0.4, 0.03),
}
"""Name → noise of one value, correlation of neighbours, and by how much the side that begins a pair is slower."""
