"""Whether this processor computes in bf16: oneDNN refuses an LSTM, and sweeps refuse amp-bf16, where it does not."""

import pytest

from analysis.devices.precisions import PRECISIONS
from measure.device.apply_precision import supported
from results.errors import Unavailable


def skip_without_bf16() -> None:
    """Skip the test that asks, with a reason that tests/expected_skips.txt names."""
    try:
        supported(PRECISIONS["amp-bf16"], "cpu", {})
    except Unavailable:
        pytest.skip("no bf16 instructions")
