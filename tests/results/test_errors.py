"""Definition: a long message is cut between words, and torch's messages about two devices become one sentence."""

import pytest

from results.errors import one_line, plain_message


@pytest.mark.parametrize(
    ("text", "line"),
    [("one\n two  three", "one two three"), ("one two three four", "one two three …"), ("x" * 20, "x" * 14 + "…")],
)
def test_a_message_of_at_most_15_characters_is_cut_between_words(text: str, line: str) -> None:
    assert one_line(text, 15) == line


@pytest.mark.parametrize(
    "message",
    [
        "Unhandled FakeTensor Device Propagation for aten.mm.default, found two different devices cuda:0, cpu",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ],
    ids=["torch 2.11", "torch 2.15"],
)
def test_two_devices_are_named_whatever_torch_writes(message: str) -> None:
    plain = (
        "it has tensors on cuda:0 and on cpu: expected a forward that creates its tensors on the device of its inputs"
    )
    assert plain_message(f"RuntimeError: {message}") == plain
