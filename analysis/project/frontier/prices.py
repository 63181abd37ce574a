"""What device-hours cost in money, energy and CO₂, at prices, watts and intensities that the caller gives.

energy = hours × watts ÷ 1000 × PUE; CO₂ = energy × intensity; money = hours × price. Watts are of one device with its
share of the host, averaged over the run: neither a datasheet's limit nor a network's default is put in their place.
Nothing of making the devices is in it, nor of the people.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WATTS_PER_KILOWATT = 1000
GRAMS_PER_KILOGRAM = 1000


def running_costs(gpu_hours: Array, given: Mapping[str, Array]) -> dict[str, Array]:
    """price (in the currency of the price), energy_kwh and co2_kg, each where what it needs is given.

    given: price (of a device-hour), watts (of a device), pue (facility ÷ device energy, 1 or more) and intensity (gCO₂e
    a kWh). Arrays are of draws. Without a PUE the energy is that of the devices alone.
    """
    found: dict[str, Array] = {}
    if "price" in given:
        found["cost"] = gpu_hours * given["price"]
    if "watts" in given:
        found["energy_kwh"] = gpu_hours * given["watts"] / WATTS_PER_KILOWATT * given.get("pue", np.ones(1))
        if "intensity" in given:
            found["co2_kg"] = found["energy_kwh"] * given["intensity"] / GRAMS_PER_KILOGRAM
    return found
