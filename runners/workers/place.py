"""Which of torchrun's processes this one is, by its environment. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A process of torchrun. address: host and port of the store where the ranks meet."""

    rank: int
    world: int
    local_rank: int
    local_world: int
    address: tuple[str, int]

    @property
    def is_alone(self) -> bool:
        """Whether all ranks are on this host."""
        return self.local_world == self.world

    def device(self, kind: str) -> str:
        """Its device of a kind: torchrun gives each process of a host a number, which is its GPU's."""
        return f"cuda:{self.local_rank}" if kind == "cuda" and self.local_rank else kind


def place_of(environ: Mapping[str, str]) -> Place | None:
    """This process's place; None where torchrun did not start it."""
    if environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    names = {"rank": "RANK", "world": "WORLD_SIZE", "local_rank": "LOCAL_RANK", "local_world": "LOCAL_WORLD_SIZE"}
    numbers = {field: int(environ[name]) for field, name in names.items()}
    return Place(**numbers, address=(environ["MASTER_ADDR"], int(environ["MASTER_PORT"])))
