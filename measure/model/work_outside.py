"""Notices work of a step that torch's dispatcher does not show, so that a step with such work gets no total.

`watch_work_outside` calls a function with a name (THREAD, ARRAY, …) when such work begins. The work may run in a thread
that the model starts, since dispatch modes are per thread. It may run on a tensor's memory, in NumPy or in the model's
own kernel, or while dispatch modes are switched off. Such work can be noticed, but not counted. torch's own code does
the same in places (a fake tensor's kernels, shapes of a checkpoint's tensors); this is not the model's work. Not
noticed: threads that were started before and take work from a queue; calculations with Python's numbers; operators in
C++ that exclude the key of dispatch modes.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

import torch
from torch.utils import _python_dispatch

THREAD, ARRAY, POINTER = "threading.Thread", "torch.Tensor.numpy", "torch.Tensor.data_ptr"
MODES_OFF, TRITON = "torch.utils._python_dispatch._disable_current_modes", "triton.JITFunction"
"""Names in the table of operations for such work, which no rule counts."""

Notice = Callable[[str], None]
_Watch = Callable[[Callable[..., Any]], Callable[..., Any]]
_GUARDS = ("_DisableTorchDispatch", "_ExcludeDispatchKeyGuard", "_ForceDispatchKeyGuard")
"""Classes of torch._C whose objects take keys out of the dispatch while they live."""
_PASSED_ON = frozenset((__name__, "contextlib", "torch.utils._contextlib", _python_dispatch.__name__))
"""Modules whose code runs on behalf of their caller."""
_OWN = ("torch.", __name__.removesuffix("model.work_outside"))
"""Prefixes of packages whose use of these functions is not the model's work."""


@contextlib.contextmanager
def watch_work_outside(notice: Notice) -> Iterator[None]:
    """Call `notice` with a name when this thread begins work that no dispatch mode sees. The name is THREAD, ARRAY (of
    floating-point or complex numbers), POINTER, MODES_OFF, TRITON or that of a class of torch._C."""
    home = get_ident()

    def watched(name: str, matters: Callable[..., bool]) -> _Watch:
        def watch(run: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **kwargs: Any) -> Any:
                if get_ident() == home and matters(*args, **kwargs):
                    notice(name)
                return run(*args, **kwargs)

            return call

        return watch

    with contextlib.ExitStack() as undo:
        for owner, attribute, name, matters in _watched_calls():
            own = attribute in vars(owner)
            run = getattr(owner, attribute)
            setattr(owner, attribute, watched(name, matters)(run))
            undo.callback(setattr, owner, attribute, run) if own else undo.callback(delattr, owner, attribute)
        yield


def _watched_calls() -> Iterator[tuple[Any, str, str, Callable[..., bool]]]:
    """Yield (owner, attribute, name, whether a call with these arguments begins such work)."""
    yield threading.Thread, "start", THREAD, _always
    yield ThreadPoolExecutor, "submit", THREAD, _always
    yield torch.Tensor, "numpy", ARRAY, _of_numbers
    yield torch.Tensor, "__dlpack__", ARRAY, _of_numbers
    yield torch.Tensor, "data_ptr", POINTER, _requested_by_model
    yield _python_dispatch, "_pop_mode", MODES_OFF, _modes_disabled
    for guard in _GUARDS:  # of the class, because its name may have been imported before
        yield getattr(torch._C, guard), "__init__", f"torch._C.{guard}", _without_modes
    kernels = sys.modules.get("triton.runtime.jit")
    if kernels is not None:
        yield kernels.JITFunction, "run", TRITON, _always


def _always(*_args: Any, **_kwargs: Any) -> bool:
    return True


def _of_numbers(tensor: torch.Tensor, *_args: Any, **_kwargs: Any) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _requested_by_model(*_args: Any, **_kwargs: Any) -> bool:
    """Return whether the calling code is neither torch's nor this package's."""
    frame = sys._getframe(2)
    while frame.f_globals.get("__name__") in _PASSED_ON and frame.f_back is not None:
        frame = frame.f_back
    return not f"{frame.f_globals.get('__name__')}.".startswith(_OWN)


def _modes_disabled(*_args: Any, **_kwargs: Any) -> bool:
    """Return whether `_disable_current_modes` takes a mode off the stack, and not the mode's own exit."""
    frame, functions = sys._getframe(2), set()
    while frame.f_globals.get("__name__") == _python_dispatch.__name__ and frame.f_back is not None:
        functions.add(frame.f_code.co_name)
        frame = frame.f_back
    return _python_dispatch._disable_current_modes.__name__ in functions and _requested_by_model()


def _without_modes(_guard: Any, *keys: Any) -> bool:
    """Return whether a guard hides operators from dispatch modes. keys: the guard's arguments, of which the last is the
    set of keys that it leaves out."""
    python = torch._C.DispatchKey.Python
    return (not keys or keys[-1].has(python)) and _requested_by_model()
