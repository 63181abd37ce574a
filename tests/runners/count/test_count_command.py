"""Definition, command, injected fault: `runners.count` on tiny models in each format; each mistake is one line."""

import csv
import io
import json

import pytest

from analysis.counters import COUNTERS
from results.records.answers import Attribution, AttributionCause
from results.records.rows import header
from runners import count as command
from tests.support.fakes.commands import refused, running

NETS = '''
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
        # 3 · 480 ÷ (480 + 576) = 1.364
        exact = "exact: 480 FLOP forward, 576 FLOP backward, 1.200 × forward; 3 × forward is 36 % above the step"
        assert f"small, batch 2, 131 parameters {exact}" in " ".join(out.split())
        lines = [line.split() for line in out.splitlines()]
        assert ["flopledger", "forward", "480", "FLOP", "1.000"] in [words[:5] for words in lines]
        assert ["thop", "forward", "240", "MAC"] in [words[:4] for words in lines]

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
            "peak",
            "counters",
            "notes",
        }
        assert set(first["exact"]) == {
            "forward_flop", "backward_flop", "optimizer_flop", "recompute_flop", "other_flop", "not_understood",
            "at_least_flop", "unknown_calls", "unknown_time_ratio",
        }  # fmt: skip
        phases = ("forward", "backward", "optimizer", "recompute")
        assert [first["exact"][f"{phase}_flop"] for phase in phases] == [FORWARD, BACKWARD, 0, 0]
        (ours,) = first["counters"]
        assert set(ours) >= {
            "counter", "status", "reason", "convention", "forward_native", "backward_native", "forward_flop",
            "backward_flop", "unexplained_flop", "causes", "duration_s", "peak_memory_bytes",
        }  # fmt: skip
        assert second["exact"]["forward_flop"] == 2 * 2 * (96 + 48 + 30 + 15)
        rows = list(csv.DictReader(io.StringIO((out_dir / "accounts.csv").read_text())))
        assert [(row["phase"], row["exact_flop"]) for row in rows] == [
            ("forward", "480"), ("backward", "576"), ("forward", "756"), ("backward", str(2 * 756 - 384)),
        ]  # fmt: skip
        assert (out_dir / "causes.csv").read_text().strip() == ",".join(header(AttributionCause))

    def test_pasted_numbers_are_explained(self, run, nets):
        """thop gives 240 multiply-adds: 0.24 k of them are that, and 480 FLOP the exact forward pass."""
        code, out, err = run(
            f"{nets}small", "--input", 12, "--batch-size", 2, "--explain", "thop=0.24k", "--format", "json"
        )
        assert (code, err) == (0, "")
        (found,) = json.loads(out)
        assert (found["counter"], found["given"], found["unit"], found["matched"]) == ("thop", 240, "mac", True)
        assert (found["exact_flop"], found["unexplained_flop"]) == (480, 0)

    def test_csv_and_frozen_layers(self, run, nets):
        """Frozen, the first layer needs nothing in the backward pass, the second its weights alone: 96 FLOP."""
        code, out, err = run(f"{nets}small", "--input", 12, "--batch-size", 2, "--counters", "exact,calflops",
                             "--frozen", "0", "--format", "csv")  # fmt: skip
        assert (code, err) == (0, "")
        rows = list(csv.DictReader(io.StringIO(out)))
        assert list(rows[0]) == list(header(Attribution))
        found = {(row["counter"], row["phase"]): row for row in rows}
        assert found["flopledger", "backward"]["exact_flop"] == "96"
        assert found["calflops", "backward"]["native_value"] == str(2 * (FORWARD + 16))  # and ReLU's 16 elements
        assert {row["unexplained_flop"] for row in rows} == {"0"}

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


class TestRefusals:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ("{}small --counters fvcorr", ("--counters", "'fvcorr'", "nearest fvcore")),
            ("resnet18 --explain fvcor=1G", ("--explain: unknown counter: expected all, exact, ", "nearest fvcore")),
            ("resnet5", ("resnet50",)),
            ("{}smal", ("has no 'smal'", "nearest: small")),
            ("{}small --input 3x-4", ("--input",)),
            ("{}small --batch-size 0", ("--batch-size",)),
            ("{}small --fromat csv", ("nearest --format",)),
            ("{}small --input 13 --batch-size 2 --counters exact", ("0 (Linear) got 2x13 float32", "13")),
            ("{}small --input 12 --counters exact --checkpoint 3", ("--checkpoint", "'3'")),
            ("wordlm --size image_size=32", ("wordlm has no image_size; it has hidden, vocab, seq, layers",)),
            ("wordlm --input 3x3", ("wordlm: expected no --input",)),
            ("gpt --size d_model=50", ("gpt needs d_model to be a multiple of heads, 12; got 50",)),
            ("wordlm --size batch=3", ("--size: expected a size, got batch, which is set by --batch",)),
        ],
    )
    def test_a_mistake_is_one_line(self, run, nets, words, said):
        refused(run(*words.format(nets).split()), *said)

    def test_a_model_that_cannot_be_built_beside_one_that_can(self, run, nets):
        code, out, err = run(f"{nets}broken", f"{nets}small", "--input", 12, "--counters", "exact", "--format", "json")
        assert code != 0
        assert err.startswith("error: ")
        assert "no such thing" in err
        assert err.count("\n") == 1
        assert [each["parameters"] for each in json.loads(out)] == [131]
