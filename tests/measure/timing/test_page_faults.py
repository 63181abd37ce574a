"""Page faults of a step: counted against memory that is really taken, and the words from a tenth of the time on."""

from __future__ import annotations

import mmap

import pytest

from measure.timing.page_faults import LEAST_FAULTS, ProcessUse, page_fault_warning, process_use


def test_each_page_that_is_written_for_the_first_time_is_a_fault():
    pages = 5000
    with mmap.mmap(-1, pages * mmap.PAGESIZE) as memory:
        if hasattr(mmap, "MADV_NOHUGEPAGE"):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
        before = process_use()
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 1
        first = process_use().since(before)
        before = process_use()
        for page in range(pages):
            memory[page * mmap.PAGESIZE] = 2
        second = process_use().since(before)
    assert first.faults >= pages
    assert second.faults < pages / 2
    assert first.user_s + first.system_s > 0


@pytest.mark.parametrize(
    ("system_s", "faults", "said"),
    [
        (1.0, 10 * LEAST_FAULTS, True),
        (0.9, 10 * LEAST_FAULTS, False),  # a tenth is 1 of 10
        (5.0, 10 * LEAST_FAULTS - 10, False),
        (0.0, 0, False),
    ],
)
def test_from_a_tenth_and_ten_thousand_faults_a_step_on(system_s, faults, said):
    words = page_fault_warning(ProcessUse(faults, 10.0 - system_s, system_s), 10)
    assert bool(words) == said
    if said:
        assert words == (
            "page_faults: 10000 a step, and 10% of the processor time was the system's: memory that is freed goes "
            "back to it and is taken anew"
        )
        kept = page_fault_warning(ProcessUse(faults, 10.0 - system_s, system_s), 10, "retain")
        assert kept == "page_faults: 10000 a step, and 10% of the processor time was the system's"


def test_nothing_ran():
    assert ProcessUse(0, 0.0, 0.0).system_ratio == 0
    assert page_fault_warning(ProcessUse(10**6, 0.0, 0.0), 0) == ""
