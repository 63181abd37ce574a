"""`runners.audit --peaks`: rows of the installed and of a made-up package, as text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import zipfile

import pytest

from runners.audit import command, peaks

TEXT = '_PEAK_FLOPS_BY_DEVICE = ()\ndef get_peak_flops(name, dtype):\n    return 312e12 if "L40S" in name else None\n'


@pytest.fixture
def folder(tmp_path):
    with zipfile.ZipFile(tmp_path / "trl-9.9-py3-none-any.whl", "w") as file:
        file.writestr("trl/trainer/utils.py", TEXT)
    return str(tmp_path)


def told(capsys, *words):
    code = command.main(["--peaks", *words])
    return code, capsys.readouterr().out


def test_json_has_the_documented_keys(folder, capsys):
    code, out = told(capsys, "--packages", folder, "--only", "TRL", "--format", "json")
    rows = json.loads(out)
    assert code == 0
    keys = {"package", "version", "device_name", "dtype", "said_flop_per_s", "ours_flop_per_s", "verdict"}
    assert all(keys <= row.keys() for row in rows)
    (found,) = [row for row in rows if row["device_name"] == "NVIDIA L40S" and row["dtype"] == "bf16"]
    assert (found["version"], found["said_flop_per_s"], found["ours_flop_per_s"]) == ("9.9", 312e12, 362.05e12)
    assert (found["verdict"], found["took"]) == ("wrong", "that of NVIDIA A100-SXM4-80GB")


def test_csv_has_the_same_rows(folder, capsys):
    _, out = told(capsys, "--packages", folder, "--only", "TRL", "zeus", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert {row["verdict"] for row in rows} >= {"wrong", "refused", "absent"}


def test_the_table_counts_verdicts_and_says_who_is_absent(folder, capsys):
    code, out = told(capsys, "--packages", folder, "--only", "TRL", "verl")
    assert code == 0
    assert "TRL" in out
    assert "verl: verl is neither installed nor in the folder of packages" in " ".join(out.split())


def test_nothing_there_is_exit_1_and_a_mistake_exit_2(tmp_path, capsys):
    assert told(capsys, "--packages", str(tmp_path), "--only", "verl")[0] == 1
    for words in (["--peaks", "--only", "verk"], []):
        with pytest.raises(SystemExit) as ended:
            command.main(words)
        assert ended.value.code == 2
    said, missing = capsys.readouterr().err.splitlines()
    assert said.startswith("error: --only: expected one of Lightning Fabric")
    assert missing == "error: expected --peaks"


def test_what_cannot_be_downloaded_is_said_and_is_a_row(tmp_path, capsys, monkeypatch):
    ran = []

    def pip(command, **_):
        ran.append(command[1:5] + command[-1:])
        return subprocess.CompletedProcess(command, 1, "", "warning\nERROR: no such thing\n")

    monkeypatch.setattr(peaks.subprocess, "run", pip)
    code = command.main(["--peaks", "--fetch", "--packages", str(tmp_path / "new"), "--only", "verl", "nanoGPT"])
    assert (code, ran) == (1, [["-m", "pip", "download", "--quiet", "verl"]])
    assert "verl: ERROR: no such thing" in capsys.readouterr().err
