"""Law, definition, injected fault: manifest.json, the program's version, and which machines may resume a run."""

import dataclasses
import errno
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from results.errors import StoreFault
from results.store.manifest import (
    Manifest,
    check_comparable,
    differing,
    driver_branch,
    harness_version,
    read_manifest,
    write_manifest,
)
from results.version import VERSION
from tests.support.made_up.made_up_runs import MANIFEST, SESSION, Failing

json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3)
    ),
    max_leaves=6,
)
text = st.text(st.characters(codec="utf-8"))
document = st.dictionaries(text, json_value, max_size=3)


@settings(max_examples=50, deadline=None)
@given(
    st.builds(
        Manifest,
        name=text,
        created_at=text,
        commands=st.lists(text, max_size=3).map(tuple),
        harness_version=text,
        options=document,
        peak_row=st.none() | document,
        notes=st.lists(text, max_size=2).map(tuple),
    )
)
def test_a_manifest_comes_back_equal(tmp_path_factory, manifest):
    path = tmp_path_factory.mktemp("run")
    write_manifest(path, manifest)
    assert read_manifest(path) == manifest


@pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
def test_a_failed_write_leaves_the_old_manifest(tmp_path, call):
    write_manifest(tmp_path, MANIFEST)
    disk = Failing(errno.ENOSPC, (call,))
    disk.broken = True
    with pytest.raises(StoreFault, match=r"manifest\.json could not be written: No space left") as caught:
        write_manifest(tmp_path, dataclasses.replace(MANIFEST, name="another"), disk)
    assert isinstance(caught.value.__cause__, OSError)
    assert read_manifest(tmp_path) == MANIFEST
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"], "no half-written file stays"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", r"manifest\.json is damaged"),
        ('{"schema_version": 1', r"manifest\.json is damaged"),
        ("[]", "is not a manifest: it has no schema_version"),
        ("{}", "is not a manifest: it has no schema_version"),
        ('{"schema_version": "1"}', "is not a manifest: it has no schema_version"),
        ('{"schema_version": true}', "is not a manifest: it has no schema_version"),
        ('{"schema_version": 1}', "is not a manifest: .*'name' and 'created_at'"),
        ('{"schema_version": 1, "name": 5, "created_at": ""}', "name is 5, expected str"),
        ('{"schema_version": 1, "name": "", "created_at": "", "commands": "x"}', 'commands is "x", expected list'),
        ('{"schema_version": 1, "name": "", "created_at": "", "peak_row": []}', r"peak_row is \[\], expected dict"),
        ('{"schema_version": 10, "what": 1}', "has schema version 10, this program reads up to 9"),
        ('{"schema_version": -1}', "is not a manifest"),
    ],
)
def test_a_manifest_that_cannot_be_used(tmp_path, content, message):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


# Which sessions belong together


@pytest.mark.parametrize(
    ("driver", "branch"), [("550.54.15", "550"), ("550.90.07", "550"), ("570.0", "570"), ("550", "550"), ("", "")]
)
def test_the_branch_of_a_driver(driver, branch):
    assert driver_branch(driver) == branch


@pytest.mark.parametrize(
    ("field", "value", "named", "said"),
    [
        ("device_name", "B", "device_name", "device_name is 'B' here and 'A CPU' in the run"),
        ("driver", "570.54.15", "driver_branch", "driver_branch is '570' here and '550' in the run"),
        ("torch_version", "2.15.1", "torch_version", "torch_version is '2.15.1' here and '2.15.0' in the run"),
        ("torch_version", "2.15.0+cpu", "torch_version", "torch_version is '2.15.0.cpu' here and '2.15.0' in the run"),
        ("peak_row", "", "peak_row", "peak_row is '' here and 'a cpu' in the run"),
    ],
)
def test_what_forbids_to_go_on_with_a_run(field, value, named, said):
    here = dataclasses.replace(SESSION, session="s2", **{field: value})
    assert [name for name, *_ in differing(SESSION, here)] == [name for name, *_ in differing(here, SESSION)] == [named]
    with pytest.raises(ValueError, match=f"this machine cannot go on with the run: {said}$"):
        check_comparable(SESSION, here)


# The version of the program


def project(path):
    path.mkdir()
    (path / "pyproject.toml").write_text('[project]\nname = "flopledger"\n')
    return path


def git(path, *words):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.invalid", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(path), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_version_names_the_commit_and_whether_it_was_changed(tmp_path):
    path = project(tmp_path / "a")
    git(path, "init", "--quiet")
    git(path, "add", "pyproject.toml")
    git(path, "commit", "--quiet", "-m", "first")
    git(path, "tag", "v1")  # a tag does not hide the commit
    commit = git(path, "rev-parse", "HEAD")[:12]
    assert harness_version(path) == f"{VERSION}+g{commit}"
    (path / "pyproject.toml").write_text((path / "pyproject.toml").read_text() + "# changed\n")
    assert harness_version(path) == f"{VERSION}+g{commit}.dirty"
