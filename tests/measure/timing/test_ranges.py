"""Injected fault, definition: an exception closes every NVTX range; Kineto is annotated while a profiler listens."""

import contextlib

import pytest

from measure.timing.profiler_ranges import DOMAIN, Ranges

PHASES = ("forward", "loss", "backward", "optimizer", "end")


class Recorder:
    """An NVTX domain whose calls are kept; fails on ending a range twice."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.names: dict[int, str] = {}
        self.built = 0

    def get_event_attributes(self, message):
        self.built += 1
        return message

    def start_range(self, attributes):
        self.said.append(f"+{attributes}")
        number = len(self.said)
        self.names[number] = attributes
        return number

    def end_range(self, number):
        self.said.append(f"-{self.names.pop(number)}")

    @contextlib.contextmanager
    def annotate(self, name):
        self.said.append(f"<{name}")
        try:
            yield
        finally:
            self.said.append(f">{name}")


def recorded(kineto: bool = False) -> tuple[Recorder, Ranges]:
    recorder = Recorder()
    return recorder, Ranges(True, recorder, recorder.annotate, lambda: kineto)


def announcing(mark=lambda phase: None):
    for phase in PHASES:
        mark(phase)
    return "result"


STEP = "+step +optimizer -optimizer +forward -forward +loss -loss +backward -backward +optimizer -optimizer -step"


@pytest.mark.parametrize("last", range(len(PHASES)))
def test_an_exception_closes_every_range(last):
    recorder, ranges = recorded(kineto=True)

    def failing(mark):
        for phase in PHASES[: last + 1]:
            mark(phase)
        raise MemoryError("no room")

    with ranges.around("cell"):
        with pytest.raises(MemoryError, match="no room"):
            ranges.step(failing)()
        assert list(recorder.names.values()) == ["cell"]
    assert not recorder.names
    assert sum(s[0] == "<" for s in recorder.said) == sum(s[0] == ">" for s in recorder.said) == last + 4 - (last == 4)


def test_kineto_is_annotated_only_while_a_profiler_listens():
    recorder, ranges = recorded(kineto=True)
    ranges.step(announcing)()
    kineto = [s for s in recorder.said if s[0] in "<>"]
    names = [s.replace("+", f"<{DOMAIN}.").replace("-", f">{DOMAIN}.") for s in STEP.split()]
    assert kineto == names
    silent, ranges = recorded(kineto=False)
    ranges.step(announcing)()
    assert silent.said == STEP.split()
