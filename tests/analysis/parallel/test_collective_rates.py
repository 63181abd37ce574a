"""What each rank has to send at least, against a ring that is run step by step."""

from __future__ import annotations

import pytest

from analysis.parallel.collective_rates import COLLECTIVES, sent_share


def parts_sent_in_a_ring(operation: str, ranks: int) -> int:
    """Parts (of as many as there are ranks) that rank 0 hands to its neighbour until all have what they shall have.

    Each step, every rank sends one part that it has and its right neighbour does not: of a gather the one that it got
    last; of a scatter the sum so far, which is then the neighbour's.
    """
    gather, scatter = 0, 0
    held = [{rank} for rank in range(ranks)]
    while any(len(each) < ranks for each in held):
        moved = [(rank + 1) % ranks for rank in range(ranks)]
        sent = [max(held[rank], key=lambda part: (rank - part) % ranks) for rank in range(ranks)]
        for rank, part in enumerate(sent):
            held[moved[rank]] = held[moved[rank]] | {part}
        gather += 1
    summed = {part: {(part + 1) % ranks} for part in range(ranks)}  # part → ranks whose numbers are in its sum
    while any(len(each) < ranks for each in summed.values()):
        for part, members in summed.items():
            summed[part] = members | {(part + 1 + len(members)) % ranks}
        scatter += 1
    return {"all_gather": gather, "reduce_scatter": scatter, "all_reduce": gather + scatter}[operation]


@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("operation", ["all_gather", "reduce_scatter", "all_reduce"])
def test_a_ring_sends_as_much_as_each_rank_has_to(operation: str, ranks: int) -> None:
    assert parts_sent_in_a_ring(operation, ranks) == sent_share(operation, ranks) * ranks


def test_to_all_others_goes_all_but_the_own_part() -> None:
    assert [sent_share("all_to_all", ranks) * ranks for ranks in (1, 2, 4)] == [0, 1, 3]
    assert [sent_share(operation, 1) for operation in COLLECTIVES] == [0] * 4
