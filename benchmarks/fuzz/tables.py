"""The readers of smaller inputs, each a function of the path of a file: tables, JSON, words of options.

What a command is told on its command line counts too: it is often pasted from somewhere.
"""

import argparse
import contextlib
import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any


def text_of(path: Path) -> str:
    """The input as a word of a command line, which holds no NUL."""
    return path.read_bytes().decode("utf-8", "surrogateescape").replace("\0", "")


def placed(path: Path, name: str) -> Path:
    """The input under another name, in a folder of its own."""
    folder = path.parent / "placed"
    folder.mkdir(exist_ok=True)
    return Path(shutil.copyfile(path, folder / name))


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """An option's refusal is a ValueError here, as any other."""
    try:
        yield
    except argparse.ArgumentTypeError as fault:
        raise ValueError(str(fault)) from fault


def ceilings(path: Path) -> None:
    from runners.ceiling import read_ceilings

    read_ceilings(path)


def self_test(path: Path) -> None:
    from cleaning.gates.evidence import SELF_TEST_FILE, self_test_faults
    from runners.rebuild import self_test_of

    found = self_test_of(placed(path, SELF_TEST_FILE).parent)
    if found is not None and not isinstance(found, str):
        list(self_test_faults(found))


def utilization(path: Path) -> None:
    from results.records.answers import Utilization
    from results.store.layout import read_records

    read_records(path, Utilization)


def explain(path: Path) -> None:
    from reports.count.explain import parse

    parse(text_of(path))


def shapes(path: Path) -> None:
    from workloads.catalogue.model_names import parse_shapes

    parse_shapes(text_of(path))


def limits(path: Path) -> None:
    from results.text_files import stated

    stated(text_of(path))


def words(path: Path) -> None:
    """The first word says which option the rest is of."""
    from runners.cli.arguments import names, number, share, sizes
    from runners.report import parse_conditions

    options: dict[str, Callable[[str], Any]] = {
        "sizes": sizes,
        "share": share,
        "names": names("model"),
        "number": number(float, 0),
        "fail-if": parse_conditions,
    }
    option, _, rest = text_of(path).partition(" ")
    with refusing():
        options.get(option, sizes)(rest)


def _made(make: Callable[[Path], None], kept: list[Path]) -> Path:
    """A directory that is made once in a process."""
    if not kept:
        kept.append(Path(tempfile.mkdtemp(prefix="fuzz-")) / "made")
        make(kept[0])
    return kept[0]


def edited(path: Path, whole: Path, names: Sequence[str]) -> Path:
    """A copy of a directory, in which the file that the input's first line names has the rest of the input."""
    name, _, content = path.read_bytes().partition(b"\n")
    copy = Path(shutil.copytree(whole, path.parent / "copy", dirs_exist_ok=True))
    (copy / next((known for known in names if known.encode() == name), names[0])).write_bytes(content)
    return copy


def seeds_of(whole: Path, names: Sequence[str]) -> Iterator[bytes]:
    """Each file as an input: its name and what it holds."""
    for name in names:
        yield name.encode() + b"\n" + (whole / name).read_bytes()


_CHARACTERIZED: list[Path] = []


def characterized() -> Path:
    """A made-up characterization as files."""
    return _made(_write_characterization, _CHARACTERIZED)


def characterization_files() -> tuple[str, ...]:
    from results.records.characterization import FILES

    return tuple(name for name in FILES if not name.endswith(".gz"))


def _write_characterization(out: Path) -> None:
    from runners.characterize import write_rows
    from tests.support.made_up.made_up_characterization import NET, recording, rows

    write_rows(rows(recording(0, "net"), NET), out)


def characterization(path: Path) -> None:
    from runners.characterize import read_rows

    read_rows(edited(path, characterized(), characterization_files()))


def command_refuses(main: Callable[[list[str]], int], words: list[str], codes: Sequence[int]) -> None:
    """Runs a command in this process. Raises RuntimeError for an exit code that is none of these."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            code = main(words)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    if code not in codes:
        raise RuntimeError(f"exit code {code}: {said.getvalue()[:300]}")
