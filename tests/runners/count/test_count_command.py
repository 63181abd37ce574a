"""The count command from end to end on tiny models: what it prints, writes and refuses."""

from __future__ import annotations

import csv
import io
import json
import time
from argparse import Namespace

import pytest

from measure.counters.harness.registry import COUNTERS
from results.records.accounts import Account, AccountCause
from results.records.counts import FlopCount
from results.records.rows import header
from runners.count import command
from tests.support.fakes.commands import refused, running

NETS = '''
import time
from pathlib import Path

from torch import nn


def small(width: int = 8):
    """12 → 8 → 3: of a sample 96 and 24 multiply-adds; 104 + 27 parameters."""
    return nn.Sequential(nn.Linear(12, width), nn.ReLU(), nn.Linear(width, 3))


def nested():
    """12 → 8, a block of 8 → 6 → 5, 5 → 3: 96, 48 + 30 and 15 multiply-adds."""
    block = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 5))
    return nn.Sequential(nn.Linear(12, 8), block, nn.Linear(5, 3))


def broken():
    raise RuntimeError("no such thing")


def slow():
    Path(__file__).with_name("started").touch()
    time.sleep(600)
'''

FORWARD, BACKWARD = 480, 576
"""FLOP of `small` at a batch of 2: 2·2·(96 + 24); back the first layer's weights alone, 384, and twice the second."""


@pytest.fixture
def nets(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    return f"{tmp_path / 'nets.py'}:"


@pytest.fixture
def run(capsys):
    """run(…arguments) → (exit code, stdout, stderr)."""
    return running(command.main, capsys)


class TestAnswers:
    def test_a_table_that_a_person_reads(self, run, nets):
        code, out, err = run(
            f"{nets}small", "--input", 12, "--batch-size", 2, "--counters", "exact,thop,ptflops", "--detail"
        )
        assert (code, err) == (0, "")
        lines = out.splitlines()
        assert max(map(len, lines)) <= 100
        del lines[: next(place for place, line in enumerate(lines) if line.startswith("exact: ")) - 1]
        assert "small, batch 2, 131 parameters exact: " in " ".join(out.split())
        # 3 · 480 ÷ (480 + 576) = 1.364
        assert (
            lines[1]
            == "exact: 480 FLOP forward, 576 FLOP backward, 1.200 × forward; 3 × forward is 36 % above the step"
        )
        assert lines[2].split()[:5] == ["counter", "pass", "its", "own", "number"]
        assert lines[3].split()[:5] == ["flopledger", "forward", "480", "FLOP", "1.000"]
        assert lines[4].split()[:4] == ["backward", "576", "FLOP", "1.000"]
        assert next(line for line in lines if line.startswith("thop ")).split()[1:4] == ["forward", "240", "MAC"]
        assert any("Every FLOP of difference has a cause" in line for line in lines)
        assert "thop, forward: 480 exact → 240 as it says" in lines
        assert "\x1b" not in out

    def test_json_has_every_documented_key(self, run, nets, tmp_path):
        out_dir = tmp_path / "made" / "here"
        code, out, err = run(
            f"{nets}small", f"{nets}nested", "--input", 12, "--batch-size", 2, "--counters", "exact",
            "--format", "json", "--out", out_dir,
        )  # fmt: skip
        assert (code, err) == (0, "")
        first, second = json.loads(out)
        assert set(first) == {
            "model",
            "batch_size",
            "parameters",
            "exact",
            "attention",
            "mixture",
            "peak",
            "backward",
            "counters",
            "notes",
        }
        assert set(first["exact"]) == {
            "forward_flop", "backward_flop", "optimizer_flop", "recompute_flop", "other_flop", "not_understood",
            "at_least_flop", "unknown_calls", "unknown_time_ratio",
        }  # fmt: skip
        assert (first["batch_size"], first["parameters"]) == (2, 131)
        exact = first["exact"]
        assert (exact["forward_flop"], exact["backward_flop"], exact["optimizer_flop"]) == (FORWARD, BACKWARD, 0)
        assert (exact["recompute_flop"], exact["not_understood"]) == (0, [])
        (ours,) = first["counters"]
        assert set(ours) >= {
            "counter", "status", "reason", "convention", "forward_native", "backward_native", "forward_flop",
            "backward_flop", "unexplained_flop", "causes", "duration_s", "peak_memory_bytes",
        }  # fmt: skip
        assert (ours["counter"], ours["status"], ours["reason"], ours["convention"]) == (
            "flopledger",
            "ok",
            None,
            "flop",
        )
        assert (ours["forward_flop"], ours["backward_flop"], ours["unexplained_flop"]) == (FORWARD, BACKWARD, 0)
        assert ours["causes"] == []
        assert second["exact"]["forward_flop"] == 2 * 2 * (96 + 48 + 30 + 15)
        rows = list(csv.DictReader(io.StringIO((out_dir / "accounts.csv").read_text())))
        assert [(row["phase"], row["exact_flop"]) for row in rows] == [
            ("forward", "480"), ("backward", "576"), ("forward", "756"), ("backward", str(2 * 756 - 384)),
        ]  # fmt: skip
        assert (out_dir / "causes.csv").read_text().strip() == ",".join(header(AccountCause))

    def test_a_pasted_name_of_no_counter_is_named_with_its_option(self, run):
        code, out, err = run("resnet18", "--explain", "fvcor=1G")
        assert (code, out) == (2, "")
        assert err.startswith("error: --explain: unknown counter: expected all, exact, ")
        assert "got 'fvcor', nearest fvcore" in err

    def test_pasted_numbers_are_explained(self, run, nets):
        """thop gives 240 multiply-adds: 0.24 k of them are that, and 480 FLOP the exact forward pass."""
        code, out, err = run(
            f"{nets}small", "--input", 12, "--batch-size", 2, "--explain", "thop=0.24k", "--format", "json"
        )
        assert (code, err) == (0, "")
        (found,) = json.loads(out)
        assert (found["counter"], found["given"], found["unit"], found["matched"]) == ("thop", 240, "mac", True)
        assert found["exact_flop"] + sum(each["flop"] for each in found["causes"]) + found["unexplained_flop"] == 240
        assert (found["exact_flop"], found["unexplained_flop"]) == (480, 0)

    def test_csv_and_frozen_layers(self, run, nets):
        """Frozen, the first layer needs nothing in the backward pass, the second its weights alone: 96 FLOP."""
        code, out, err = run(f"{nets}small", "--input", 12, "--batch-size", 2, "--counters", "exact,calflops",
                             "--frozen", "0", "--format", "csv")  # fmt: skip
        assert (code, err) == (0, "")
        rows = list(csv.DictReader(io.StringIO(out)))
        assert list(rows[0]) == list(header(Account))
        found = {(row["counter"], row["phase"]): row for row in rows}
        assert found["flopledger", "backward"]["exact_flop"] == "96"
        assert found["calflops", "backward"]["native_value"] == str(2 * (FORWARD + 16))  # and ReLU's 16 elements
        assert {row["unexplained_flop"] for row in rows} == {"0"}

    def test_csv_of_causes(self, run, nets):
        code, out, _ = run(f"{nets}small", "--input", 12, "--counters", "thop", "--format", "csv", "--detail")
        assert code == 0
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [(row["cause"], row["kind"], row["module"], row["flop"]) for row in rows] == [
            ("multiply_add_as_1", "matmul", "0", "-96"),
            ("multiply_add_as_1", "matmul", "2", "-24"),
        ]

    def test_all_counters_of_a_checkpointed_model(self, run, nets):
        """Of the block the first layer is calculated again, 2·2·48 FLOP; the second is called again, but not finished:
        torch.profiler counts it, 2·2·30."""
        code, out, _ = run(f"{nets}nested", "--input", 12, "--batch-size", 2, "--checkpoint", "1", "--format", "json")
        assert code == 0
        made = json.loads(out)
        assert made["exact"]["recompute_flop"] == 192
        counters = {each["counter"]: each for each in made["counters"]}
        assert list(counters) == list(COUNTERS)
        assert all(each["unexplained_flop"] == 0 for each in counters.values() if each["status"] == "ok")
        assert {name for name, each in counters.items() if each["status"] != "ok"} <= {"pthflops"}
        again = {
            name: sum(cause["flop"] for cause in each["causes"] if cause["cause"] == "recompute_counted")
            for name, each in counters.items()
        }
        expected = {"flop_counter_mode": 192, "torch_profiler": 192 + 120}
        assert again == dict.fromkeys(COUNTERS, 0) | expected


class TestRowsOfFailure:
    def test_a_missing_and_a_hanging_counter_are_rows(self, run, nets, monkeypatch):
        monkeypatch.setitem(COUNTERS, "thop", ("no_such_package:count", "thop>=0.1"))
        monkeypatch.setitem(COUNTERS, "torchinfo", ("tests.support.fakes.fake_counters:hanging", ""))
        start_s = time.monotonic()
        code, out, err = run(f"{nets}small", "--input", 12, "--counters", "thop,torchinfo", "--timeout", 6)
        assert (code, err) == (0, "")
        assert time.monotonic() - start_s < 90
        words = " ".join(out.split())
        assert "pip install 'thop>=0.1'" in words
        assert "killed at its limit of 6 s" in words
        assert max(map(len, out.splitlines())) <= 100


def test_a_model_of_text_by_sizes_of_its_own(run):
    """6 words, each 8·16² multiply-adds for the four gates of input and state, and 16·9 for the softmax layer."""
    words = "wordlm --size hidden=16,vocab=9,layers=1,seq=3 --batch-size 2 --counters exact --format json"
    code, out, _ = run(*words.split())
    assert code == 0
    assert json.loads(out)["exact"]["forward_flop"] == 2 * 6 * (8 * 16**2 + 16 * 9)


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("{}small --counters fvcorr", ("--counters", "'fvcorr'", "nearest fvcore")),
            ("resnet5", ("resnet50",)),
            ("{}smal", ("has no 'smal'", "nearest: small")),
            ("{}small --input 3x-4", ("--input",)),
            ("{}small --batch-size 0", ("--batch-size",)),
            ("{}small --fromat csv", ("nearest --format",)),
            ("{}small --input 13 --batch-size 2 --counters exact", ("0 (Linear) got 2x13 float32", "13")),
            ("{}small --input 12 --counters exact --checkpoint 3", ("--checkpoint", "'3'")),
        ],
    )
    def test_a_mistake_is_one_line(self, run, nets, words, said):
        refused(run(*words.format(nets).split()), *said)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("wordlm --size image_size=32", "wordlm has no image_size; it has hidden, vocab, seq, layers"),
            ("wordlm --input 3x3", "wordlm takes its own inputs"),
            ("gpt --size d_model=50", "gpt needs d_model to be a multiple of heads, 12; got 50"),
            ("wordlm --size name=3", "wordlm has no name"),
            ("wordlm --size batch=3", "--size: expected sizes that no other option says, got batch"),
            ("wordlm --size hidden", "--size: expected NAME=N,NAME=N"),
        ],
    )
    def test_a_size_that_cannot_be(self, run, words, said):
        refused(run(*words.split(), "--counters", "exact"), said)

    def test_a_model_that_cannot_be_built_beside_one_that_can(self, run, nets):
        code, out, err = run(f"{nets}broken", f"{nets}small", "--input", 12, "--counters", "exact", "--format", "json")
        assert code != 0
        assert err.startswith("error: ")
        assert "no such thing" in err
        assert err.count("\n") == 1
        assert [each["parameters"] for each in json.loads(out)] == [131]


def test_the_exact_count_has_a_row_for_each_batch_with_its_name_and_phases(monkeypatch):
    def counted(*_: object, **__: object) -> list[FlopCount]:
        shared = {"counter": "exact", "workload": "net", "status": "ok", "parameters": 9, "native_unit": "flop"}
        pairs = [(size, phase) for size in (2, 4) for phase in ("forward", "backward")]
        return [FlopCount(batch_size=n, phase=p, flop=10 * n + len(p), native_value=1, **shared) for n, p in pairs]

    monkeypatch.setattr("measure.counters.harness.isolation.count_isolated", counted)
    found = command._exactly("net", {}, Namespace(timeout=1.0), (2, 4, 8))
    assert [(each.model, each.batch_size, each.parameters) for each in found] == [("net", 2, 9), ("net", 4, 9)]
    assert found[1].exact == {"forward": 47, "backward": 48, "optimizer": 0}
