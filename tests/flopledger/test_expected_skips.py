"""Command: .ci/skips.py accepts the skips that are listed and no other, and each listed test exists."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci" / "skips.py"
LIST = ROOT / "tests" / "expected_skips.txt"
TESTS = """
import pytest

@pytest.mark.skip(reason="no disk")
@pytest.mark.parametrize("size", [1, 2.5])
def test_function(size): ...

class TestGroup:
    @pytest.mark.skip(reason="no cluster")
    def test_method(self): ...
"""


@pytest.fixture
def report(tmp_path: Path) -> Path:
    """A JUnit report of a skipped function with parameters and of a skipped method, written by pytest itself."""
    folder = tmp_path / "tests" / "group"
    folder.mkdir(parents=True)
    (folder / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=report.xml", "tests"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    return tmp_path / "report.xml"


def check(report: Path, *lines: str) -> tuple[int, str]:
    """Exit code and stderr of the script with a list of these lines."""
    listed = report.with_name("expected.txt")
    listed.write_text("\n".join(lines))
    done = subprocess.run([sys.executable, str(SCRIPT), str(report), str(listed)], capture_output=True, text=True)
    return done.returncode, done.stderr


def test_a_listed_function_and_a_listed_method_may_be_skipped(report: Path) -> None:
    function = "tests/group/test_some.py::test_function | no disk"
    method = "tests/group/test_some.py::TestGroup::test_method | no cluster"
    assert check(report, function, method) == (0, "")
    code, message = check(report, function)
    assert (code, message) == (1, f"unexpected skip: {method}\n")
    assert check(report, function, method.replace("cluster", "disk"))[0] == 1


def test_each_listed_test_exists() -> None:
    specification = importlib.util.spec_from_file_location("skips", SCRIPT)
    assert specification
    assert specification.loader
    skips = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(skips)
    for test in skips.expected(LIST):
        file, *names = test.split("::")
        text = (ROOT / file).read_text()
        for name in names:
            assert f"def {name}(" in text or f"class {name}" in text, test
