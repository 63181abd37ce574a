"""Where the numbers of a meter may go: one call for any logger.

    log = CsvLog("utilization.csv")
    …
    if step % 50 == 0:
        log.log(step, meter.window().scalars())

Each adapter needs the package that it is named after, when it is made; a table and an endpoint for Prometheus need
none. What is not known has no value there, never 0.
"""

import csv
import http.server
import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

LOOPBACK = "127.0.0.1"


class Logger(Protocol):
    """Takes numbers of a step by name; `close` ends it."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Take the values of a step, by name."""

    def close(self) -> None:
        """End the log."""


class _Closing:
    """A logger as a context."""

    def close(self) -> None:
        """Nothing to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _fault: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


class CsvLog(_Closing):
    """A CSV file with a row for each call of `log`: step, time_s (of the system's clock) and the values.

    Rows are added to a file that exists. A value that a row lacks is empty. A new name becomes a column at the end; the
    file is then written anew.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._names: list[str] = []
        if self._path.exists():
            with self._path.open(encoding="utf-8", newline="") as file:
                self._names = next(csv.reader(file), [])

    def log(self, step: int, values: Mapping[str, float]) -> None:
        row = {"step": step, "time_s": time.time(), **values}
        if more := [name for name in row if name not in self._names]:
            self._widen(more)
        with self._path.open("a", encoding="utf-8", newline="") as file:
            csv.DictWriter(file, self._names, restval="").writerow(row)

    def _widen(self, more: list[str]) -> None:
        """Writes the table with these columns at its end, and puts it in the place of the old one."""
        rows: list[dict[str, str]] = []
        if self._names:
            with self._path.open(encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        self._names = [*self._names, *more]
        wider = self._path.with_name(f"{self._path.name}.part")
        with wider.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, self._names, restval="")
            writer.writeheader()
            writer.writerows(rows)
        wider.replace(self._path)


class TensorBoardLog(_Closing):
    """Scalars of TensorBoard. to: a directory, or a `SummaryWriter` of the caller's, which stays open."""

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
    """Weights & Biases. run: what `wandb.init` gave (offline: `mode="offline"`); its owner finishes it.

    W&B keeps a step when the next one begins, or the run ends: other values of the same step are in the same row.
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


class PrometheusEndpoint(_Closing):
    """The latest values as gauges at http://127.0.0.1:PORT/metrics, for a Prometheus on this machine.

    port: 0 takes a free one; `url` says it. Text format 0.0.4. Nothing outside of this machine can reach it. Raises
    OSError for a port that is taken.
    """

    def __init__(self, port: int = 0, prefix: str = "flopledger_") -> None:
        self._prefix = prefix
        self._text = b""
        endpoint = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                endpoint._answer(self)

            def log_message(self, *_words: Any) -> None:
                """Not on the terminal of a training."""

        self._server = http.server.ThreadingHTTPServer((LOOPBACK, port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{LOOPBACK}:{self._server.server_address[1]}/metrics"
        self._thread = threading.Thread(target=self._server.serve_forever, name="flopledger-prometheus", daemon=True)
        self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        lines = []
        for name, value in {"step": step, **values}.items():
            gauge = self._prefix + re.sub(r"[^a-zA-Z0-9_:]", "_", name)
            lines += [f"# TYPE {gauge} gauge", f"{gauge} {float(value)!r}"]
        self._text = ("\n".join(lines) + "\n").encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: http.server.BaseHTTPRequestHandler) -> None:
        found = request.path.partition("?")[0] == "/metrics"
        body = self._text if found else b"expected /metrics\n"
        request.send_response(200 if found else 404)
        request.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
