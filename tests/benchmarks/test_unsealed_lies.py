"""Each field of each file of a run changed, by each kind of lie, with no seal made anew: reading says so.

The lies whose seals are made anew are those of `tests/cleaning/gates/test_lies.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from results.store.layout import SEALED
from results.store.store import read_run
from tests.support.lies import unsealed_lies
from tests.support.lies.lie_matrix import PAGE
from tests.support.lies.unsealed_lies import FILES, is_reported, lied
from tests.support.made_up.seals import older


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unsealed_lies.sealed(tmp_path_factory.mktemp("lies"))


@pytest.mark.parametrize("file", FILES)
def test_a_lie_without_a_new_seal_is_reported(sealed: Path, tmp_path: Path, file: str) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    assert not is_reported(path)
    reported = [(lie, is_reported(path)) for lie in lied(path, file)]
    assert len(reported) > 8
    assert [lie for lie, seen in reported if not seen] == []
    assert not is_reported(path)


@pytest.mark.parametrize("file", [file for file in FILES if file in SEALED])
def test_of_an_older_run_it_is_reported_or_the_run_is_unsealed(sealed: Path, tmp_path: Path, file: str) -> None:
    path = Path(shutil.copytree(sealed, tmp_path / "run"))
    older(path)
    assert read_run(path).unsealed
    assert [lie for lie in lied(path, file) if not is_reported(path)] == []


def test_the_page_has_their_numbers() -> None:
    assert "\n".join(unsealed_lies.section()) in PAGE.read_text(encoding="utf-8")
