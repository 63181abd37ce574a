"""Counters that misbehave, for `tests/measure/counters/harness/test_isolate.py`: each is imported in the child process
by name."""

import os
import signal
import subprocess
import sys
import threading
import time

from results.records.counts import FlopCount


def row(workload, batch_size, **fields):
    values = {"native_value": 10 * batch_size, "native_unit": "mac", "flop": 20 * batch_size, "phase": "forward"}
    return FlopCount(counter="fake", workload=workload, batch_size=batch_size, **values | fields)


def printing(model, inputs, *, workload, batch_size):
    print("noise on stdout")
    print("noise on stderr", file=sys.stderr)
    os.system("echo noise of a child process")
    return [row(workload, batch_size), row(workload, batch_size, operator="conv")]


def hungry(model, inputs, *, workload, batch_size):
    held = bytearray(b"x" * 100_000_000)  # written, so that it is resident
    return [row(workload, batch_size, native_value=len(held))]


def crashing(model, inputs, *, workload, batch_size):
    print("about to divide by a null pointer")
    os.kill(os.getpid(), signal.SIGSEGV)


def crashing_later(model, inputs, *, workload, batch_size):
    if batch_size > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return [row(workload, batch_size)]


def leaving(model, inputs, *, workload, batch_size):
    sys.exit(3)


def hanging(model, inputs, *, workload, batch_size):
    """Deaf to polite signals, and with a process of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    started = subprocess.Popen(["sleep", "600"])
    print("pid", started.pid)
    time.sleep(600)


def orphaning(model, inputs, *, workload, batch_size):
    """Dies, while a process that it started holds all its files open."""
    subprocess.Popen(["sleep", "600"], close_fds=False)
    os.kill(os.getpid(), signal.SIGABRT)


def lingering(model, inputs, *, workload, batch_size):
    """Answers, and does not end: a thread of it goes on."""
    threading.Thread(target=time.sleep, args=(600,)).start()
    return [row(workload, batch_size)]


def raising(model, inputs, *, workload, batch_size):
    raise RuntimeError("cannot count\nthis model")


def exhausted(model, inputs, *, workload, batch_size):
    raise MemoryError("no more")


def silent(model, inputs, *, workload, batch_size):
    return []


def not_a_number(model, inputs, *, workload, batch_size):
    """A total that is none at a batch of 2, an operator's at a batch of 4."""
    total = {"native_value": float("nan"), "flop": float("nan")} if batch_size == 2 else {}
    conv = {"flop": float("inf")} if batch_size == 4 else {}
    return [row(workload, batch_size, **total), row(workload, batch_size, operator="conv", **conv)]
