"""Command, injected fault: a mistake on the sweep's command line is one line, exit code 2, and leaves nothing."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from results.store.manifest import Manifest, write_manifest
from runners.sweep.__main__ import main
from runners.sweep.plan import Grid
from tests.support.fakes.real_sweeps import here
from tests.support.made_up.made_up_cifar import made

ROOT = Path(__file__).parents[4]

Refused = Callable[..., str]


def sweep(*arguments: str, cwd: Path, code: str | None = None) -> subprocess.CompletedProcess[str]:
    start = ["-c", code] if code else ["-m", "runners.sweep"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    words = [sys.executable, *start, *arguments]
    return subprocess.run(words, cwd=cwd, env=environ, capture_output=True, text=True, timeout=120, check=False)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A working directory with a file, a directory that holds something, and a run made up by hand."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    (tmp_path / "run").mkdir()
    grid = Grid(models=("resnet18",), batch_sizes=(8,), precisions=("fp32",), device="cpu")
    manifest = Manifest(name="run", created_at="2026-01-02T03:04:05Z", options=grid.as_json())
    write_manifest(tmp_path / "run", manifest)
    return tmp_path


@pytest.fixture
def refused(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Refused]:
    """The one line of a mistake, from the command in this process; it leaves nothing, as `one_line` says."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "100")
    before = signal.getsignal(signal.SIGTERM)  # which the command takes

    def line_of(*arguments: str) -> str:
        held = files(place)
        with pytest.raises(SystemExit) as left:
            main(arguments)
        return one_line(left.value.code, *capsys.readouterr(), held, files(place))

    yield line_of
    signal.signal(signal.SIGTERM, before)


def one_line(code: object, out: str, err: str, before: list[str], after: list[str]) -> str:
    """Exit code 2, nothing on stdout, one line on stderr, and nothing in the working directory that was not there."""
    assert (code, out) == (2, ""), err
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert after == before
    return err


def refused_process(place: Path, *arguments: str) -> str:
    """The same of a process of its own, with all that its workers print."""
    before = files(place)
    done = sweep(*arguments, cwd=place)
    return one_line(done.returncode, done.stdout, done.stderr, before, files(place))


NUMBER = "expected a whole number of at least 1, got"
MISTAKES = [
    (("--models", "resnet5O"), ["--models: unknown model: expected alexnet", "got 'resnet5O'", "nearest resnet50"]),
    (("--models", "resnet18,,vgg11"), ["--models: expected model names separated by commas, got 'resnet18,,vgg11'"]),
    (("--models", ""), ["--models: expected model names", "got ''"]),
    (("--batch-sizes", "0"), [f"--batch-sizes: {NUMBER} '0'"]),
    (("--batch-sizes", "-4"), ["--batch-sizes: expected"]),
    (("--batch-sizes", "8,many"), [f"--batch-sizes: {NUMBER} 'many'"]),
    (("--batch-sizes", "8,,4"), [f"--batch-sizes: {NUMBER} ''"]),
    (("--precisions", "fp31"), ["--precisions: unknown precision: expected fp32, tf32", "got 'fp31'", "nearest fp32"]),
    (
        ("--suite", "post2012"),
        ["--suite: unknown value: expected post2021, ", "'post2012', nearest post2021"],
    ),
    (("--device", "gpu"), ["--device: expected auto, cpu, cuda or cuda:N, got 'gpu'"]),
    (("--device", "cuda:"), ["--device: expected", "got 'cuda:'"]),
    (("--device", "cuda:one"), ["--device: expected", "got 'cuda:one'"]),
    (("--device", "cpu:1"), ["--device: expected", "got 'cpu:1'"]),
    (("--layout", "channels-last"), ["--layout: unknown layout", "got 'channels-last', nearest channels_last"]),
    (("--optimizer", "sdg"), ["--optimizer: unknown optimizer", "got 'sdg', nearest sgd"]),
    (
        ("--methods", "exakt"),
        ["--methods: unknown method: expected theory, one, batch, epoch or exact", "nearest exact"],
    ),
    (("--methods", "epochs"), ["got 'epochs', nearest epoch"]),
    (("--counters", "fvcor"), ["--counters: unknown counter: expected", " more", "got 'fvcor', nearest fvcore"]),
    (("--counters", "al"), ["--counters: unknown counter: expected", "got 'al', nearest all"]),
    (("--convention", "post2012"), ["--convention: unknown value: expected flop or post2021", "nearest post2021"]),
    (("--profile", "kinetto"), ["--profile: unknown value: expected kineto or nsys, got 'kinetto', nearest kineto"]),
    (("--profile", "kineto,nsys"), ["--profile: unknown value: expected kineto or nsys, got 'kineto,nsys'"]),
    (("--profile", "nsys"), ["--profile: expected --methods with one or batch or epoch beside it, got theory,exact"]),
    (("--epoch-images", "9", "--methods", "one"), ["--epoch-images: expected --methods with epoch beside it, got one"]),
    (("--profile", "kineto"), ["--profile: expected --methods with one or batch or epoch beside it, got theory,exact"]),
    (("--profile", "kineto", "--methods", "exact"), ["--profile: expected --methods with one", "got exact"]),
    (("--epoch-images", "0"), [f"--epoch-images: {NUMBER} '0'"]),
    (("--retry", "failed"), ["--retry: expected --resume with it"]),
    (("--cudnn-benchmark", "maybe"), ["--cudnn-benchmark: expected on or off, got 'maybe'"]),
    (("--target-ci", "5"), ["--target-ci: expected a number from", "got '5'"]),
    (("--peak-tflops", "0"), ["--peak-tflops: expected a number from 1e-06 to 1e+09", "got '0'"]),
    (("--peak-tflops", "nan"), ["--peak-tflops: expected a number from 1e-06 to 1e+09", "got 'nan'"]),
    (("--repeat", "0"), [f"--repeat: {NUMBER} '0'"]),
    (("--seed", "1.5"), ["--seed: expected a whole number", "got '1.5'"]),
    (("--seed", "99999999999999999999"), ["--seed: expected a whole number from 0", "got '9999"]),
    (("--cell-timeout", "0"), ["--cell-timeout: expected a number from 1 to 1e+06, got '0'"]),
    (("--cell-timeout", "inf"), ["--cell-timeout: expected a number from 1 to 1e+06, got 'inf'"]),
    (("--time-budget", "-1"), ["--time-budget: expected"]),
    (("--format", "xml"), ["--format: unknown value: expected table, csv or json, got 'xml'"]),
    (("--formt", "json"), ["unknown argument", "got '--formt', nearest --format"]),
    (("--models", "synthetic_matmul", "--size", "image_size=32"), ["--size: synthetic_matmul has no image_size"]),
    (("--models", "synthetic_sleep", "--size", "num_classes=9"), ["--size: synthetic_sleep has no num_classes"]),
    (("--size", "image_size=0"), [f"--size: image_size: {NUMBER} '0'"]),
    (("--models", "wordlm", "--size", "image_size=32"), ["--size: wordlm has no image_size; it has hidden, vocab"]),
    (("--models", "wordlm,resnet18", "--size", "hidden=8"), ["--size: resnet18 has no hidden; it has image_size"]),
    (("--size", "hidden"), ["--size: expected NAME=N,NAME=N, each name once, got 'hidden'"]),
    (("--size", "hidden=0"), [f"--size: hidden: {NUMBER} '0'"]),
    (("--data", "imagenet"), ["--data: expected synthetic or cifar10:DIR, got 'imagenet'"]),
    (("--data", "cifar10:full"), ["--data cifar10:full: expected full/cifar-10-batches-py/ with data_batch_1"]),
    (("--data", "cifar10:nowhere"), ["expected nowhere/cifar-10-batches-py/", "no data_batch_1"]),
    (("--out", "file"), ["expected a directory for the run, got the file file"]),
    (("--out", "full"), ["expected a new or empty directory, got full, which holds thesis.tex"]),
    (("--out", "run"), ["run holds a run already: pass --resume to go on with it, or name another directory"]),
    (("--out", "a" * 300), ["expected a directory that can be written, got aaa", "name too long"]),
    (("--resume", "nowhere"), ["expected the directory of a run, got nowhere, which does not exist"]),
    (("--resume", "full"), ["expected the directory of a run, got full, which has no manifest.json"]),
    (("--resume", "file"), ["expected the directory of a run, got file"]),
    (("--resume",), ["--resume: expected a run in results/runs, found none; name its directory"]),
    (("--resume", "run", "--out", "other"), ["--resume run and --out other name two directories"]),
    (("--resume", "run", "--models", "resnet5O"), ["--models: unknown model", "nearest resnet50"]),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=lambda value: " ".join(value)[:40])
def test_a_mistake_is_one_line_that_says_what_was_expected_what_came_and_what_is_near(refused, arguments, said):
    out = () if "--out" in arguments or "--resume" in arguments else ("--out", "new")
    line = refused(*arguments, *out).lower()
    assert [part for part in said if part.lower() not in line] == [], line


DEVICE_MISTAKES = [
    (("--device", "cpu", "--precisions", "fp32,tf32"), ["--precisions: tf32 on cpu", "a CPU has none", "got tf32"]),
    (("--device", "cuda:97"), ["--device: expected a CUDA device that torch sees, got cuda:97"]),
    (("--device", "cpu", "--time-budget", "2"), ["--time-budget: expected at least 13.2 s", "got 2"]),
    (
        ("--device", "cpu", "--methods", "epoch", "--epoch-images", "5"),
        ["--epoch-images: expected at least 8, one largest batch, got 5"],
    ),
    (("--device", "cpu", "--out", "file/below"), ["expected a directory that can be written, got file/below"]),
    (("--device", "cpu", "--out", "/proc/nothing/run"), ["expected a directory that can be written, got /proc"]),
]


@pytest.mark.parametrize(("arguments", "said"), DEVICE_MISTAKES, ids=lambda value: " ".join(value)[:40])
def test_a_mistake_that_only_the_device_can_tell_leaves_nothing_either(refused, arguments, said):
    out = () if "--out" in arguments else ("--out", "new")
    line = refused(*arguments, *out)
    assert [part for part in said if part not in line] == [], line


@pytest.mark.parametrize(("arguments", "said"), [MISTAKES[0], DEVICE_MISTAKES[0]], ids=["options", "device"])
def test_a_process_says_the_same_line_and_its_workers_none(place, arguments, said):
    line = refused_process(place, *arguments, "--out", "new")
    assert [part for part in said if part not in line] == [], line


def test_images_that_are_not_cifars_are_refused_before_anything_is_measured(place, refused):
    """Files of the right format and another checksum: torchvision reads them in a process of their own."""
    made(place / "full")
    line = refused("--device", "cpu", "--data", "cifar10:full", "--size", "num_classes=10", "--out", "new")
    assert line.startswith("error: --data cifar10:full: expected CIFAR-10 in full/cifar-10-batches-py/: a file differs")


def test_a_run_of_another_machine_is_refused_and_stays_as_it_was(place):
    """A session of a GPU in the run; here is none. Its manifest must not become that of this machine."""
    from results.records.cell import SessionRow
    from results.store.store import Store

    with Store.resume(place / "run") as store:
        store.append_session(
            SessionRow(
                session="s0",
                started_at="2026-01-02T03:04:05Z",
                host="far",
                device="cuda",
                device_name="NVIDIA H100 80GB HBM3",
                driver="550.54.15",
                torch_version="2.15.0",
                peak_row="h100-sxm",
            )
        )
    (place / "run" / ".lock").unlink()
    before = (place / "run" / "manifest.json").read_bytes(), (place / "run" / "sessions.csv").read_bytes()
    done = here("--resume", "run", "--device", "cpu", cwd=place)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "this machine cannot go on with the run: device_name is" in done.stderr.splitlines()[-1]
    assert "'NVIDIA H100 80GB HBM3' in the run" in done.stderr
    assert "Traceback" not in done.stderr
    after = (place / "run" / "manifest.json").read_bytes(), (place / "run" / "sessions.csv").read_bytes()
    assert after == before
    assert json.loads(after[0])["commands"] == []
