"""What flows where in a forward pass: what follows from inputs and weights, and what the outputs follow from.

Counters that read a graph see neither what is calculated from constants alone (torch.fx does that at once) nor what
nothing uses (torch.jit leaves it out). Both are recognised by storages: a view belongs to what it is a view of.
"""

from results.records.counts import Call, CallRecording, Sized, tensors


class DataFlow:
    """Which tensors follow from the inputs, the weights or a module that stands for itself, call by call.

    Calls are asked about in their order.
    """

    def __init__(self, recording: CallRecording) -> None:
        self._operations = recording.operations
        self._known = set(recording.sources)
        self._at = self._leaf_until = 0

    def leaf(self, call: Call) -> None:
        """Whatever this module gives follows from it."""
        self._reach(call.first)
        self._leaf_until = max(self._leaf_until, call.last)

    def any_of(self, call: Call) -> bool:
        """Whether any tensor among a call's arguments does."""
        self._reach(call.first)
        return any(given.storage in self._known for given in tensors((call.arguments, call.keywords)))

    def first_of(self, call: Call) -> bool:
        """Whether its first argument is a tensor that does."""
        self._reach(call.first)
        given = call.arguments[0] if call.arguments else None
        return isinstance(given, Sized) and given.storage in self._known

    def _reach(self, index: int) -> None:
        while self._at < min(index, len(self._operations)):
            operation = self._operations[self._at]
            if self._at < self._leaf_until or not self._known.isdisjoint(operation.reads):
                self._known.update(operation.writes)
            self._at += 1


def used(recording: CallRecording) -> set[int]:
    """The indices of the forward operations whose results reach an output; views, which calculate nothing, apart."""
    wanted, found = set(recording.results), set()
    for operation in reversed(recording.operations):
        if operation.phase == "forward" and operation.kind != "view" and not wanted.isdisjoint(operation.writes):
            wanted.update(operation.reads)
            found.add(operation.index)
    return found
