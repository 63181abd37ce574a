"""Opens ranges around cell, pass, step and phases for profilers: NVTX for Nsight, `record_function` for Kineto.

`Ranges.step` takes a step and returns it under ranges; `Ranges.around` is a context with one range. NVTX ranges are
start/end ranges, which belong to the process. Push/pop ranges belong to a thread, but CUDA's backward pass launches its
kernels from autograd's own thread. `record_function` is per thread, too. Readers of a Kineto trace take the launches
*within a range's time* on every thread (pytorch#144778). This is right because one step at a time runs.
`record_function` is entered only while a profiler listens, since it always costs 7 µs; an NVTX pair without a tool
costs 0.15 µs. Not claimed: that a phase's kernels run within its range, which is a host interval; they may run after
the range has ended.
"""

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

Mark = Callable[[str], None]
Step = Callable[..., Any]

DOMAIN = "flopledger"
"""NVTX domain of all ranges; Kineto's annotations are "flopledger.NAME"."""

BEFORE_FORWARD = "optimizer"
"""Phase of what a step does before its first mark: zero_grad."""


def noop(phase: str) -> None:
    """Ignore the phase: a mark for steps whose phases are not used."""


class Ranges:
    """Opens and closes ranges; with enabled=False it does nothing and costs nothing.

    nvtx: an NVTX domain (`start_range(attributes)`, `end_range(range)`, `get_event_attributes(message)`); None: that of
    the nvtx package, where it is installed. record: a factory of Kineto annotations; None: torch's.
    listening: returns whether a profiler is active; None: torch's own answer.
    """

    def __init__(
        self,
        enabled: bool,
        nvtx: Any = None,
        record: Callable[[str], contextlib.AbstractContextManager[Any]] | None = None,
        listening: Callable[[], bool] | None = None,
    ) -> None:
        self.enabled = enabled
        self._open: list[tuple[Any, Any]] = []
        if enabled:
            import torch

            self._nvtx = nvtx
            if nvtx is None:
                with contextlib.suppress(ImportError):  # NVTX ranges are optional
                    self._nvtx = getattr(importlib.import_module("nvtx"), "get_domain", lambda _: None)(DOMAIN)
            self._record = record or torch.profiler.record_function
            self._listening: Callable[[], bool] = listening or torch._C._autograd._profiler_enabled
            self._attributes: dict[str, Any] = {}

    def step(self, step: Step) -> Step:
        """Return a function that runs `step` under a range, with a range for each phase that the step marks.

        The function takes a `mark`, which is called at each phase, too. However the step ends, none of its ranges stays
        open. Returns `step` itself when disabled.
        """
        if not self.enabled:
            return step

        def ranged(mark: Mark = noop) -> Any:
            depth = len(self._open)
            is_recorded = self._listening()

            def phase(name: str) -> None:
                self._close(depth + 1)
                if name != "end":
                    self._enter(name, is_recorded)
                mark(name)

            self._enter("step", is_recorded)
            try:
                self._enter(BEFORE_FORWARD, is_recorded)
                return step(phase)
            finally:
                self._close(depth)

        return ranged

    @contextlib.contextmanager
    def around(self, name: str) -> Iterator[None]:
        """Open a range around all that is done for one cell, or around steps of one pass: one, batch, last or epoch."""
        depth = len(self._open)
        if self.enabled:
            self._enter(name, self._listening())
        try:
            yield
        finally:
            self._close(depth)

    def _enter(self, name: str, is_recorded: bool) -> None:
        annotation = None
        if is_recorded:
            annotation = self._record(f"{DOMAIN}.{name}")
            annotation.__enter__()
        started = None
        if self._nvtx is not None:
            if name not in self._attributes:
                self._attributes[name] = self._nvtx.get_event_attributes(message=name)
            started = self._nvtx.start_range(self._attributes[name])
        self._open.append((started, annotation))

    def _close(self, depth: int) -> None:
        """Close the innermost ranges until `depth` are open."""
        while len(self._open) > depth:
            started, annotation = self._open.pop()
            if started is not None:
                self._nvtx.end_range(started)
            if annotation is not None:
                annotation.__exit__(None, None, None)
