"""A rank's place among others. Knows no torch: whoever hands it to the process that takes it has none."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupMember:
    """A rank's place in a group. address: host and port of the store where ranks meet; prefix: of this group's keys
    in it; timeout_s: of a collective, after which the ranks that wait for one that hangs fail; alone: all ranks are on
    one host."""

    rank: int
    world: int
    device: str
    address: tuple[str, int]
    prefix: str
    timeout_s: float
    alone: bool = False
