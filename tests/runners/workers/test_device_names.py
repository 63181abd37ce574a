"""The names of devices that `--device` takes."""

from __future__ import annotations

import pytest

from runners.cli.exits import Mistake
from runners.workers.devices import check_name


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:11"])
def test_a_device_may_be_called(name: str) -> None:
    check_name(name)


@pytest.mark.parametrize("name", ["tpu", "", "cpu:1", "auto:0", "cuda:", "cuda:x", "cuda:-1", "gpu:0"])
def test_no_other_name_is_a_device(name: str) -> None:
    with pytest.raises(Mistake, match="expected auto, cpu, cuda or cuda:N"):
        check_name(name)
