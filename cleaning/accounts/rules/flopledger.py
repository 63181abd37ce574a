"""Our own count by its rule: every product, 2 FLOP a multiply-add, nothing else. An account with causes is a fault."""

from cleaning.accounts.vocabulary.items import Counted, exact_flop, in_phase, missed_by, of_operation
from results.records.counts import CallRecording

UNIT = "flop"


def count(recording: CallRecording, phase: str) -> Counted:
    """Its items of one pass."""
    items = [of_operation(operation, exact_flop(operation)) for operation in in_phase(recording, phase)]
    return [item for item in items if item.native], missed_by({}, "operator_without_rule")
