"""Bytes of a group with oneDNN's LSTM: its workspace has no known size, so that they are at least what is known."""

from __future__ import annotations

from analysis.characterize.summary import _group_cost
from results.records.characterization import OperationCost


def cost(name: str) -> OperationCost:
    return OperationCost(
        recording=0, name=name, kind="recurrent", phase="forward", calls=2, model_flop=600, read_bytes=40,
        written_bytes=20, time_s=0.5,
    )  # fmt: skip


def test_a_group_with_a_workspace_of_no_known_size_has_no_rate_of_bytes() -> None:
    known = _group_cost("net", "A", [cost("aten.addmm")])
    assert (known.bytes, known.flop_per_byte, known.bytes_per_s, known.unsized_calls) == (60, 10.0, 120.0, 0)
    for name in ("aten.mkldnn_rnn_layer", "aten.mkldnn_rnn_layer_backward"):
        part = _group_cost("net", "A", [cost("aten.addmm"), cost(name)])
        assert (part.bytes, part.flop_per_byte, part.bytes_per_s, part.unsized_calls) == (120, None, None, 2)
        assert part.flop_per_s == 1200
