"""Sends a meter's numbers to CSV, TensorBoard, Weights & Biases or MLflow, and meters the steps of trainers.

    log = CsvLog("utilization.csv")
    if step % 50 == 0:
        log.log(step, meter.window().scalars())

All loggers have `log`, which takes the number of a step and values by name, and `close`. An unknown value is left out,
never written as 0. TensorBoard and MLflow are imported when their logger is created. `MeterCallback` is the common part
of the trainers' callbacks: it meters each step, and turns a fault into one warning.
"""

import csv
import functools
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from measure.meter.meter import MeterSummary, UtilizationMeter
from results.errors import one_line


class Logger(Protocol):
    """Takes the numbers of a step by name, until `close`."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write the values of a step. values: name → number."""

    def close(self) -> None:
        """End the log."""


class _Closing:
    """A logger that is also a context manager."""

    def close(self) -> None:
        """Do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class CsvLog(_Closing):
    """A CSV file with a row for each call of `log`: step, time_s (s since 1970) and the values.

    Rows are added to a file that exists. A value that a row lacks is empty. A new name becomes a column at the end, for
    which the file is written again.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._names: list[str] = []
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as file:
                self._names = next(csv.reader(file), [])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        row = {"step": step, "time_s": time.time(), **values}
        if new_names := [name for name in row if name not in self._names]:
            self._widen(new_names)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._names, restval="").writerow(row)

    def _widen(self, new_names: list[str]) -> None:
        """Replace the file by one with these further columns at the end."""
        rows: list[dict[str, str]] = []
        if self._names:
            with self._path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        self._names = [*self._names, *new_names]
        wider = self._path.with_name(f"{self._path.name}.part")
        with wider.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self._names, restval="")
            writer.writeheader()
            writer.writerows(rows)
        wider.replace(self._path)


class TensorBoardLog(_Closing):
    """Scalars in TensorBoard. to: a directory, or the caller's own `SummaryWriter`, which stays open."""

    def __init__(self, to: Any) -> None:
        self._owned = None
        if isinstance(to, (str, Path)):
            from torch.utils.tensorboard import SummaryWriter

            self._owned = to = SummaryWriter(str(to))
        self._writer = to

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self._owned is not None:
            self._owned.close()


class WandbLog(_Closing):
    """Weights & Biases. run: what `wandb.init` returned (offline: `mode="offline"`); the caller finishes it.

    W&B writes a step's row when the next step begins or the run ends, so that other values of the step share the row.
    """

    def __init__(self, run: Any) -> None:
        self._run = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)


class MlflowLog(_Closing):
    """Metrics of an MLflow run, through `MlflowClient`. client: the caller's; None: one of the current tracking URI."""

    def __init__(self, run_id: str, client: Any = None) -> None:
        from mlflow import MlflowClient

        self._run_id = run_id
        self._client = client or MlflowClient()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now_ms = round(1000 * time.time())
        metrics = [Metric(name, value, now_ms, step) for name, value in values.items()]
        self._client.log_batch(self._run_id, metrics=metrics)


class MeterCallback:
    """Meters a trainer's steps. options: of `UtilizationMeter`. meter: the meter, once training has begun. result: the
    summary of all steps, once training has ended. has_failed: whether a fault has ended the measurement."""

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.meter: UtilizationMeter | None = None
        self.result: MeterSummary | None = None
        self.has_failed = False

    def _begin(self, is_last: bool) -> None:
        if self.meter is not None:
            if is_last:
                self.meter.observe_next()
            self.meter.begin()

    def _end(self) -> None:
        if self.meter is not None and self.meter.is_open:
            self.meter.update()

    def _finish(self) -> None:
        if self.meter is not None:
            self.result = self.meter.summary()
            self.meter.close()


def guarded(method: Callable[..., None]) -> Callable[..., None]:
    """Wrap a callback's method that a trainer calls: a fault in it ends the measurement with one warning, not training.

    ValueError and TypeError are raised while there is no meter yet, since the caller's options are wrong.
    """

    @functools.wraps(method)
    def call(self: MeterCallback, *args: Any, **kwargs: Any) -> None:
        try:
            if not self.has_failed:
                method(self, *args, **kwargs)
        except Exception as fault:
            if self.meter is None and isinstance(fault, (ValueError, TypeError)):
                raise
            self.has_failed = True
            if self.meter is not None:
                self.meter.fail(fault)
                self.result = self.meter.summary()
                return
            reason = f"the meter stopped: {type(fault).__name__}: {one_line(str(fault), 200)}"
            warnings.warn(f"flopledger: {reason}", RuntimeWarning, stacklevel=2)
            self.result = MeterSummary(steps=0, device="", device_name="", warnings=(reason,))

    return call
