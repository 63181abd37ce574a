"""A process that reads what others made, with less than its user may do: memory, time, files, programs, network.

Linux alone; what a system does not offer is left out, and `confine` says what that is. Nothing can be taken back, so
that only a child process calls it. Sources: landlock(7), unshare(2), setrlimit(2), prctl(2). Not claimed: that reading
is confined; a process may read every file that its user may.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_NEW_NETWORK, _NEW_USER = 0x40000000, 0x10000000
_CREATE, _ADD, _RESTRICT = 444, 445, 446  # landlock's system calls, the same on every architecture
_EXECUTE, _WRITE_FILE, _REFER, _TRUNCATE = 1 << 0, 1 << 1, 1 << 13, 1 << 14
_MAKE_OR_REMOVE = sum(1 << bit for bit in range(4, 13))
_TCP = 0b11
_FOURTH = 4
"""The version of landlock that knows TCP."""

PROCESSES = 64
"""Threads and processes of a confined one, where they are counted for it alone."""


@dataclass(frozen=True)
class Rights:
    """What is left to a process. None: no limit. writable: folders and files; None: every one."""

    memory_bytes: int | None = None  # beyond what it has already
    cpu_s: int | None = None  # beyond what it has used already
    file_bytes: int | None = None
    writable: Sequence[Path] | None = None
    programs: bool = True
    network: bool = True


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def confine(rights: Rights) -> tuple[str, ...]:
    """Gives up all other rights; a line for each thing that this system does not offer."""
    missing = []
    if not rights.network and (why := _leave_network()):
        missing.append(f"no network: {why}")
    if (rights.writable is not None or not rights.programs or not rights.network) and (why := _landlock(rights)):
        missing.append(f"no writing outside its folder: {why}")
    _limit(resource.RLIMIT_CPU, rights.cpu_s, _used_s())
    _limit(resource.RLIMIT_FSIZE, rights.file_bytes, 0)
    if hasattr(resource, "RLIMIT_AS"):
        _limit(resource.RLIMIT_AS, rights.memory_bytes, _mapped_bytes())
    _limit(resource.RLIMIT_CORE, 0, 0)
    return tuple(missing)


def die_with_parent(number: int = signal.SIGKILL) -> bool:
    """Has the kernel send this process a signal when the thread that started it ends; False where it does not offer
    that."""
    if sys.platform != "linux":
        return False
    before = os.getppid()
    done = bool(_libc().prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0) == 0)
    if os.getppid() != before:  # it ended meanwhile
        os.kill(os.getpid(), number)
    return done


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _leave_network() -> str:
    """Goes to a network namespace of its own, without any device; "" or why not. A user who is not root needs a user
    namespace for that, which a process with threads cannot have."""
    if sys.platform != "linux":
        return f"{sys.platform} has no namespaces"
    libc = _libc()
    if libc.unshare(_NEW_NETWORK) == 0:
        return ""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEW_NETWORK | _NEW_USER) != 0:
        return os.strerror(ctypes.get_errno())
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with contextlib.suppress(OSError):
            Path(f"/proc/self/{name}").write_text(text)
    # in a user namespace of its own its threads are counted alone
    _limit(resource.RLIMIT_NPROC, PROCESSES, 0)
    return ""


def _landlock(rights: Rights) -> str:
    """Takes away writing, programs and TCP as far as the rights do; "" or why not."""
    if sys.platform != "linux":
        return f"{sys.platform} has no landlock"
    libc = _libc()
    version = libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return os.strerror(ctypes.get_errno())
    writing = _WRITE_FILE | _MAKE_OR_REMOVE | (_REFER if version > 1 else 0) | (_TRUNCATE if version > 2 else 0)
    files = (writing if rights.writable is not None else 0) | (0 if rights.programs else _EXECUTE)
    rules = _Ruleset(files, _TCP if version >= _FOURTH and not rights.network else 0)
    ruleset = libc.syscall(_CREATE, ctypes.byref(rules), ctypes.c_size_t(16 if version >= _FOURTH else 8), 0)
    if ruleset < 0:
        return os.strerror(ctypes.get_errno())
    try:
        for path in rights.writable or ():
            _allow(libc, ruleset, path, writing)
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        return "" if libc.syscall(_RESTRICT, ruleset, 0) == 0 else os.strerror(ctypes.get_errno())
    finally:
        os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, writing: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there needs no right
    try:
        allowed = writing if path.is_dir() else writing & (_WRITE_FILE | _TRUNCATE)
        libc.syscall(_ADD, ruleset, 1, ctypes.byref(_Beneath(allowed, opened)), 0)
    finally:
        os.close(opened)


def _limit(which: int, most: int | None, already: int) -> None:
    """Lowers a limit; one that is lower already stays."""
    if most is None:
        return
    _, hard = resource.getrlimit(which)
    wanted = most + already if hard == resource.RLIM_INFINITY else min(most + already, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(which, (wanted, wanted))


def _used_s() -> int:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return int(used.ru_utime + used.ru_stime) + 1


def _mapped_bytes() -> int:
    """Address space of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (OSError, ValueError):
        return 0


def free_bytes(kernel: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Memory that the machine, and the control group of this process, can still give; None where neither says."""
    limits = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(":", 1) for line in kernel.read_text(encoding="ascii").splitlines())
        limits.append(int(lines["MemAvailable"].split()[0]) * 1024)
    with contextlib.suppress(OSError, ValueError):  # "max" is no number: no limit
        limit, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        limits.append(limit - used)
    return max(0, min(limits)) if limits else None
