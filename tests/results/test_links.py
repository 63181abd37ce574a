"""Injected fault: what a link in somebody else's run directory leads to is not read, cut, replaced or deleted."""

import shutil
from pathlib import Path

import pytest

from results.store.reading import read_run
from results.store.store import Store
from runners import rebuild
from tests.support.made_up.made_up_runs import a_run, new_store, rows_of

TEXT = "line one\nthe last line has no end"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with new_store(tmp_path / "run") as store:
        store.commit(a_run("a"), rows_of("a"))
    return tmp_path / "run"


@pytest.mark.parametrize("name", ["figures", "cleaned", "telemetry.csv", "operations/t.csv.gz", "runs.csv"])
@pytest.mark.parametrize("use", [read_run, Store.resume, rebuild.rebuild])
def test_a_link_in_a_run_is_refused_and_what_it_names_stays(run: Path, tmp_path: Path, name: str, use) -> None:
    outside = tmp_path / "outside"
    link = run / name
    if Path(name).suffix:
        outside.write_text(TEXT)
        link.parent.mkdir(exist_ok=True)
        link.unlink(missing_ok=True)
    else:
        outside.mkdir()
        (outside / "result.svg").write_text(TEXT)
        shutil.rmtree(link, ignore_errors=True)
    link.symlink_to(outside)
    with pytest.raises(ValueError, match=f"expected a run without links, got {name}, which leads to "):
        use(run)
    assert (outside if outside.is_file() else outside / "result.svg").read_text() == TEXT


def test_the_run_itself_may_be_behind_a_link(run: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(run)
    assert len(read_run(tmp_path / "link").runs) == 1
