"""What a process on the same processors does to a sweep: its utilization, its interval, and how long it takes.

    python -m benchmarks.paired.cells --out DIR [--sweeps 10]

So many sweeps without options (the README's first line) beside a process that is busy for 30 % of each 100 ms, as many
at 50 %, and then on the idle machine one with the same number of threads for each that was taken. A sweep that is there
is not measured again. The machine must be idle otherwise. Not claimed: processes that share caches or memory only;
other machines.
"""

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

BUSY = (0.3, 0.5)
"""Share of each SLICE_S that the other process is busy."""
SLICE_S = 0.1


def spin(share: float) -> None:
    """Busy for a share of each slice, until the process is ended."""
    while True:
        until_s = time.monotonic() + share * SLICE_S
        while time.monotonic() < until_s:
            pass
        time.sleep((1 - share) * SLICE_S)


@contextmanager
def busy_process(share: float) -> Iterator[None]:
    """Another process is busy for a share of each slice until the block ends."""
    process = multiprocessing.Process(target=spin, args=(share,), daemon=True)
    process.start()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def sweep(run: Path, share: float, environ: Mapping[str, str]) -> float:
    """One sweep without options beside a process that is busy for a share of each 100 ms; how long it took, s. One
    that is there is not measured again."""
    if not (run / "seconds").exists():
        begun_s = time.monotonic()
        with busy_process(share):
            command = [sys.executable, "-m", "runners.sweep", "--device", "cpu", "--out", str(run)]
            subprocess.run(command, env=os.environ | environ, check=True, stdout=subprocess.DEVNULL)
        (run / "seconds").write_text(str(time.monotonic() - begun_s))
    return float((run / "seconds").read_text())


def used(run: Path) -> pd.DataFrame:
    """By model: threads, wait policy, paired utilization, and half of its 95 % interval ÷ it."""
    rows = pd.read_csv(run / "utilization.csv", keep_default_na=False).set_index("model")
    rows = rows[(rows.method == "exact") & (rows.denominator == "paired_ceiling")]
    low, high, ratio = (pd.to_numeric(rows[f"utilization_{end}ratio"]) for end in ("low_", "high_", ""))
    return rows[["threads", "wait_policy"]].assign(ratio=ratio, width=(high - low) / (2 * ratio))


def sweeps(out: Path, count: int) -> Iterator[str]:
    """A row in Markdown for each share and model."""
    yield "| busy | model | threads | within ±5 % | median ± | ÷ idle (median; least, most) | seconds, the most |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for share in BUSY:
        runs = [out / f"busy-{100 * share:.0f}-{n}" for n in range(count)]
        most_s = max(sweep(run, share, {}) for run in runs)
        for model, rows in pd.concat(map(used, runs)).groupby(level=0):
            of_idle = []
            for threads, policy, ratio in rows[["threads", "wait_policy", "ratio"]].itertuples(index=False):
                idle, number = out / f"idle-{threads}{policy}", {"OMP_NUM_THREADS": str(threads or os.cpu_count())}
                sweep(idle, 0.0, number | ({"OMP_WAIT_POLICY": policy} if policy else {}))
                of_idle.append(ratio / used(idle).loc[model, "ratio"])
            chosen = ", ".join(
                sorted({f"{t or 'own'} {p}".strip() for t, p in zip(rows.threads, rows.wait_policy, strict=True)})
            )
            narrow = f"{(rows.width <= 0.05).sum()} of {len(rows)} | {rows.width.median():.1%}"
            span = f"{statistics.median(of_idle):.2f}; {min(of_idle):.2f}, {max(of_idle):.2f}"
            yield f"| {share:.0%} | {model} | {chosen} | {narrow} | {span} | {most_s:.0f} |"


def main() -> int:
    description = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired.cells", description=description)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the runs; those there are kept")
    parser.add_argument("--sweeps", type=int, default=10, metavar="N", help="beside each busy process (10)")
    options = parser.parse_args()
    print(*sweeps(options.out, options.sweeps), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
