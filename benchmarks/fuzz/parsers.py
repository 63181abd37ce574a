"""The parsers of data from others, each as a function of some bytes and a folder that it may write to.

`PARSERS` is the registry: name → how its input becomes a file, and what reads it. Inputs to begin with are in
`tests/data/fuzz/NAME/`, all made by us; of directories they are made here. Smaller ones are in `tables.py`.
"""

import contextlib
import gzip
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.fuzz import tables

CORPUS = Path(__file__).parents[2] / "tests/data/fuzz"

Read = Callable[[Path], None]


@dataclass(frozen=True)
class Parser:
    """ending: of the file. packed: it is gzipped, and the edits are made within."""

    read: Read
    ending: str = ".txt"
    packed: bool = False

    def file(self, data: bytes, folder: Path) -> Path:
        """The input as a file."""
        path = folder / f"input{self.ending}"
        path.write_bytes(gzip.compress(data, 1, mtime=0) if self.packed else data)
        return path

    def seeds(self, name: str) -> list[bytes]:
        """The inputs to begin with."""
        if name in MADE:
            whole, files = MADE[name]
            return list(tables.seeds_of(whole(), files()))
        files = sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
        return [gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes() for path in files]


def _recording(path: Path) -> None:
    from runners.cli.model_options import read_recording
    from runners.trace import cleaned

    with contextlib.suppress(OSError):  # becomes one line, as in the command
        totals = cleaned(read_recording(path)).cleaned.phase_totals
        each_total = [each for phases in totals.values() for each in phases.values()]
        negative = [each.at_least for each in each_total if (each.flop or each.at_least or 0) < 0]
        if negative:
            raise AssertionError(f"a total of {negative[0]} FLOP")


def _ranks(path: Path) -> None:
    """The input as two ranks of one run."""
    from analysis.rank_report import report_of
    from measure.trace.read import read_rank
    from reports.trace.ranks import ranks_document, ranks_text

    one = read_rank(path)
    report = report_of({one.rank: one, one.rank + 1: replace(one, rank=one.rank + 1, host="")}, {})
    ranks_text(report)
    json.dumps(ranks_document(report), allow_nan=False)


def _transformers(path: Path) -> None:
    import torch

    from workloads.any_model import get

    folder = path.parent / "config"
    folder.mkdir(exist_ok=True)
    shutil.copyfile(path, folder / "config.json")
    workload = get(f"hf:{folder}")
    with torch.device("meta"):
        workload.build(**workload.hyper)


def _toml(path: Path) -> None:
    from argparse import Namespace

    from runners.projection import _domain

    _domain(Namespace(file=str(path), target=None, sub_batch=None, allow_code=False))


def _deepspeed(path: Path) -> None:
    from runners.profile import read

    read(path)


def _formula(path: Path) -> None:
    from analysis.formula.expressions import parse

    parse(tables.text_of(path))


def _point(path: Path) -> None:
    from analysis.formula.requests import axes

    axes(tables.text_of(path))


def _peaks(path: Path) -> None:
    from analysis.devices.peaks import lookup

    lookup(tables.text_of(path))


def _model_name(path: Path) -> None:
    from workloads.catalogue.model_names import parse

    parse(tables.text_of(path))


_RUN_FILES = ("manifest.json", "runs.csv", "sessions.csv", "ceilings.csv", "samples.csv", "flop_counts.csv")


def _small_run() -> Path:
    """One run for the process, made once."""
    import tempfile

    from tests.support.made_up.small_run import small_run

    if not _MADE:
        _MADE.append(small_run(Path(tempfile.mkdtemp(prefix="fuzz-run-")) / "run", 1))
    return _MADE[0]


_MADE: list[Path] = []


def _run(path: Path) -> None:
    """The first line names the file of a run that the rest is put into; what that rests on gets its checksum anew."""
    from tests.support.made_up.checksums import recompute_checksums
    from tests.support.made_up.small_run import rebuilt

    run = tables.edited(path, _small_run(), _RUN_FILES)
    try:
        with contextlib.suppress(Exception):  # a file that no longer has rows is left as it is
            recompute_checksums(run)
        rebuilt(run)
    finally:
        shutil.rmtree(run)


def _gate(path: Path) -> None:
    """A run through the gate of pull requests: what it is compared with is the same run without the edit."""
    from runners.report import main
    from tests.support.made_up.checksums import recompute_checksums

    run = tables.edited(path, _small_run(), _RUN_FILES)
    try:
        with contextlib.suppress(Exception):
            recompute_checksums(run)
        tables.command_refuses(main, [str(_small_run()), str(run), "--fail-if", "slower:2%,flop:0"], (0, 2, 5))
    finally:
        shutil.rmtree(run)


PARSERS: Mapping[str, Parser] = {
    "kineto": Parser(_recording, ".json"),
    "nsys": Parser(_recording, ".sqlite"),
    "pyprof": Parser(_recording, ".csv"),
    "ranks": Parser(_ranks, ".json"),
    "transformers": Parser(_transformers, ".json"),
    "toml": Parser(_toml, ".toml"),
    "deepspeed": Parser(_deepspeed, ".json"),
    "formula": Parser(_formula),
    "point": Parser(_point),
    "peaks": Parser(_peaks),
    "model": Parser(_model_name),
    "run": Parser(_run),
    "gate": Parser(_gate),
    "characterization": Parser(tables.characterization),
    "ceilings": Parser(tables.ceilings, ".csv"),
    "utilization": Parser(tables.utilization, ".csv"),
    "self_test": Parser(tables.self_test, ".json"),
    "explain": Parser(tables.explain),
    "shapes": Parser(tables.shapes),
    "limits": Parser(tables.limits),
    "words": Parser(tables.words),
}
"""Name → parser."""

MADE: Mapping[str, tuple[Callable[[], Path], Callable[[], tuple[str, ...]]]] = {
    "run": (_small_run, lambda: _RUN_FILES),
    "gate": (_small_run, lambda: _RUN_FILES),
    "characterization": (tables.characterized, tables.characterization_files),
}
"""Parser of a directory → how it is made, and which of its files are edited; the others have inputs in `CORPUS`."""
