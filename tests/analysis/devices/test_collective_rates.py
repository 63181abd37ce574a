"""Definition: the share of a collective's bytes that each rank has to send at least."""

from analysis.devices.ceilings import COLLECTIVES, sent_share


def test_to_all_others_goes_all_but_the_own_part() -> None:
    assert [sent_share("all_to_all", ranks) * ranks for ranks in (1, 2, 4)] == [0, 1, 3]
    assert [sent_share(operation, 1) for operation in COLLECTIVES] == [0] * 4
