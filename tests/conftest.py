"""Tests marked `gpu` are skipped without a CUDA device, for one reason that the list of expected skips knows."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip `gpu` tests without a device. torch is asked only if there are any."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _has_cuda():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
