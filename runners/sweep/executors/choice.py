"""Where cells are measured (here, by torchrun's ranks, on a cluster's devices), and what does not go with each."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from analysis.parallel.rank_grid import parse_plan
from results.records.rows import WORKS
from runners.cli.output import say
from runners.sweep.ranks import peers
from runners.workers.devices import Place, ProbeResult, TelemetryWatch, sitting_of
from runners.workers.pool import ask_once

if TYPE_CHECKING:
    from results.records.cell import Cell, Run
    from results.store.store import Store
    from runners.cli.progress import Progress
    from runners.sweep.executors.remote import Remote
    from runners.sweep.findings import SlotFacts
    from runners.sweep.session import Limits, Session


LOCAL, RAY = "local", "ray"
EXECUTORS = (LOCAL, RAY)

PACKAGE = "ray>=2.49,<3"
"""What to install for RAY."""


class Terminated(KeyboardInterrupt):
    """SIGTERM came: what was measured is kept, as after Ctrl-C."""


class Local:
    """The executor whose cells are measured here, one after the other."""

    unmeasured = 0

    def __init__(self) -> None:
        self._watch: TelemetryWatch | None = None
        self._torch = ""

    def probe(self, device: str) -> ProbeResult:
        """What the device is. Raises ValueError for one that is not there."""
        probed: ProbeResult = ask_once("runners.workers.devices:probe", device)
        return probed

    def begin_session(self, store: Store, probed: ProbeResult) -> TelemetryWatch:
        """Begins a session. Raises ValueError if this machine may not go on with the run."""
        from results.store.manifest import harness_version, utc_now

        self._torch, version = str(probed.environment.get("torch")), harness_version()
        watch = self._watch = TelemetryWatch(probed.device)
        for other in {str(sitting.environment.get("harness_version")) for sitting in store.sittings} - {version}:
            say(f"note: earlier sessions of this run were collected by version {other}, this is {version}")
        name, facts = f"s{len(store.sittings)}", {"harness_version": version}
        store.append_sitting(sitting_of(name, utc_now(), socket.gethostname(), probed, watch.preflight(), facts))
        return watch

    def rows(
        self,
        store: Store,
        cells: Sequence[Cell],
        limits: Limits,
        progress: Progress,
        notes: tuple[str, ...],
    ) -> Iterator[Run]:
        """The rows of these cells, each once it is committed, in the session begun last. notes: warnings of each."""
        assert self._watch is not None  # `begin_session` came before
        self._watch.start()
        try:
            name = store.sittings[-1].sitting
            session = self._session(store, name, self._torch, self._watch, limits, progress, notes)
            yield from session.each(cells)
        finally:
            self._watch.close()

    def _session(self, *parts: Any) -> Session:
        from runners.sweep.session import Session

        return Session(*parts)

    def close(self) -> None:
        """Nothing is held beyond a session."""


class RankExecutor(Local):
    """The executor whose cells are trained by the ranks of torchrun, of which this process is the first."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        peers.end_with_torchrun(Terminated)
        self._exchange = peers.Exchange(place)
        self._peers: peers.RankPeers | None = None

    def probe(self, device: str) -> ProbeResult:
        """What this rank's device is, when all ranks have said theirs. Raises ValueError where they differ."""
        probed = super().probe(device)
        self._peers = peers.RankPeers(self._exchange, probed)
        self._exchange.put("start", probed.device)
        self._peers.gather_facts()
        return probed

    def _session(self, *parts: Any) -> Session:
        from runners.sweep.ranks.session import RankSession

        assert self._peers is not None  # `probe` came before
        return RankSession(self._peers, *parts)

    def close(self) -> None:
        """Lets the other ranks end."""
        with contextlib.suppress(peers.LostExchange):
            if self._peers is not None:
                self._peers.order(None)
        self._exchange.close()


def check_executor(options: argparse.Namespace) -> None:
    """What can be checked without a cluster. Raises ValueError, one line, where Ray is not installed, or an option does
    not go with the executor."""
    if options.executor == LOCAL:
        if options.accelerator:
            raise ValueError(f"--accelerator: expected --executor {RAY} beside it, got --executor {LOCAL}")
        return
    if options.profile == "nsys":
        raise ValueError(f"--profile: expected kineto with --executor {RAY}, got nsys")
    if options.device not in (None, "auto", "cpu", "cuda"):
        raise ValueError(f"--device: expected auto, cpu or cuda with --executor {RAY}, got {options.device}")
    if importlib.util.find_spec("ray") is None:
        raise ValueError(f"--executor {RAY}: ray is not installed: python -m pip install '{PACKAGE}'")


def open_slots(options: argparse.Namespace, device: str, threads: str) -> Remote:
    """The slots of a Ray cluster. device: auto, cpu or cuda. threads: OMP_NUM_THREADS here. Raises ValueError where
    there are none."""
    from results.store.manifest import harness_version
    from runners.sweep.executors.ray_slots import RaySlots
    from runners.sweep.executors.remote import Remote
    from runners.sweep.findings import SlotSettings

    settings = SlotSettings(device, options.cell_timeout, harness_version(), threads)
    return Remote(RaySlots(settings, options.accelerator or ""), settings.version)


Executor: TypeAlias = "Local | Remote"
Begun: TypeAlias = "TelemetryWatch | SlotFacts"
"""What a session is begun with: its `reason` says why there is no telemetry, \"\" if there is."""

SCALING = ("strong", "weak")

TORCHRUN = "torchrun --nproc-per-node N -m runners.sweep …"

ONE_DEVICE = ("compile", "paired_ceiling", "profile")
"""Options of a step on one device."""


def _plan(text: str) -> str:
    """A plan as it is kept."""
    try:
        return parse_plan(text).name
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from fault


RANK_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "--parallel": {
        "nargs": "+",
        "type": _plan,
        "metavar": "PLAN",
        "help": f"under {TORCHRUN}: ddp=2, fsdp=4, …, one after another (default: ddp over all ranks; docs/cluster.md)",
    },
    "--scaling": {
        "choices": SCALING,
        "help": "of --parallel: whether --batch-sizes are of all ranks together (strong, default) or of each replica",
    },
}


def check_ranks(plans: Sequence[str], values: Mapping[str, Any], place: Place | None) -> None:
    """Raises ValueError for plans that these processes or these options do not go with. values: option → its value."""
    if not plans:
        return
    if place is None:
        raise ValueError(f"--parallel: expected to be started as {TORCHRUN}, got a single process")
    for plan in plans:
        grid = parse_plan(plan)
        if grid.world > place.world:
            raise ValueError(
                f"--parallel: expected plans of at most {place.world} ranks, as torchrun started, got {plan}"
            )
    for name in ONE_DEVICE:
        value = values.get(name)
        if any(value) if isinstance(value, (list, tuple)) else value:
            raise ValueError(f"--{name.replace('_', '-')}: not with --parallel, which trains on several ranks")
    if values.get("executor", LOCAL) != LOCAL:
        raise ValueError(f"--executor: expected {LOCAL} with --parallel, got {values['executor']}")
    if (values.get("data") or "synthetic") != "synthetic":
        raise ValueError(f"--data: expected synthetic with --parallel, got {values['data']}")
    recording = [method for method in values.get("methods") or () if method in WORKS]
    if recording:
        raise ValueError(f"--methods: expected theory or exact with --parallel, got {','.join(recording)}")
    if values.get("batch_sizes") == ():
        raise ValueError("--batch-sizes: expected sizes with --parallel, got auto")
    if (device := str(values.get("device", "auto"))) not in ("auto", "cpu", "cuda"):
        raise ValueError(f"--device: expected auto, cpu or cuda with --parallel: each rank has its own; got {device}")
