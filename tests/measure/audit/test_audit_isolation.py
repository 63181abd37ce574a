"""A framework's formula runs in a process of its own: what it answers, and each way in which it may not."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from analysis.audit import architectures
from measure.audit import AuditedPackage, Question, ask, find
from measure.audit.exact_numbers import Exact, exact_view

MODEL = architectures()["llama-3-8b"]

TRL = "def compute_flops_per_token(config, seq_len):\n    {body}\n"


def package(folder: Path, body: str) -> Path:
    """A folder like trl's, with a formula of our own."""
    (folder / "trl" / "trainer").mkdir(parents=True)
    (folder / "trl" / "trainer" / "utils.py").write_text("import nowhere\n" + TRL.format(body=body))
    return folder


BODY = """if seq_len == 5: print('noise'); return 3 * seq_len + config.vocab_size
    if seq_len == 6: return config.nothing
    if seq_len == 7: import socket; socket.create_connection(('127.0.0.1', 9), 1)
    if seq_len == 8: open('/var/tmp/flopledger-audit', 'w')
    if seq_len == 9: return 1
    import os; os._exit(3)"""


def test_each_question_has_its_answer_or_its_reason(tmp_path: Path) -> None:
    questions = [Question(MODEL, tokens) for tokens in range(5, 12)]
    answers = ask("trl", [package(tmp_path, BODY)], questions, 60)
    # of a sequence: tokens × (3 × tokens + 128,256)
    assert answers[0]["flop"] == str(5 * (15 + 128_256))
    assert "has no attribute 'nothing'" in answers[1]["reason"]
    assert "Error" in answers[2]["reason"]
    assert "refused" not in answers[2]["reason"].lower(), "there is no network at all"
    assert "ermission" in answers[3]["reason"]
    assert answers[4]["flop"] == "9", "what failed cost its own row"
    assert all(answer["reason"].startswith("its process ended with 3") for answer in answers[5:])


def test_a_formula_that_does_not_end_is_ended(tmp_path: Path) -> None:
    (answer,) = ask("trl", [package(tmp_path, "while True: pass")], [Question(MODEL, 5)], 1)
    assert answer["reason"] == "no answer within 1 s"


def test_the_version_is_that_of_the_folder(tmp_path: Path) -> None:
    info = tmp_path / "some_thing-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Some_Thing\nVersion: 1.2\n")
    assert find(tmp_path, "some-thing") == AuditedPackage("1.2", tmp_path)
    assert find(tmp_path, "another") is None
    assert find(tmp_path / "nowhere", "no-such-package-at-all") is None


def test_a_package_of_this_environment_is_found_with_its_files(tmp_path: Path) -> None:
    """A formula that is cut from its package's source needs the folder, wherever the package is."""
    found = find(tmp_path / "nowhere", "packaging")
    assert found is not None
    assert (found.folder / "packaging" / "version.py").is_file()
    (tmp_path / "empty").mkdir()
    assert find(tmp_path / "empty", "packaging") is None, "a folder of its own comes before this environment"


@pytest.mark.parametrize(
    ("value", "right"),
    [
        (12 * Exact(8) / 32 * 3, 9),
        (Exact(7) / 3 * 3 + 0.5 - 1, Fraction(13, 2)),
        (1.0 / Exact(1, 10**12), 10**12),
        (Exact(7) // 2 + 7 // Exact(2), 6),
        (Exact(2**60 + 1) * 0.5, Fraction(2**60 + 1, 2)),
        (Exact(3) ** 2 - Exact(1), 8),
        (4 - Exact(1), 3),
        (len([0] * Exact(3)), 3),
    ],
)
def test_numbers_stay_exact(value: Fraction, right: Fraction) -> None:
    assert value == right


def test_a_view_has_the_name_and_the_values_of_what_it_shows() -> None:
    class Config:
        width, tied, name = 7, True, "x"

    view = exact_view(Config())
    assert type(view).__name__ == "Config"
    assert isinstance(view.width, Exact)
    assert view.width == 7
    assert view.tied is True
    assert view.name == "x"
    assert not hasattr(view, "nothing")


MAXTEXT = """
import jax

class Unused(jax.Thing): ...

def calculate_ffn(config):
    return 2 * config.max_target_length * config.mlp_dim * config.emb_dim * len(config.mlp_activations)

def of_window(config):
    return config.max_target_length * config.sliding_window_size - 0.5 * config.sliding_window_size**2

def needs_jax(config, to=jax.device_count()): return to

def calculate_tflops_training_per_device(config, log=True):
    assert not log
    if config.decoder_block == DecoderBlockType.GEMMA3:
        return of_window(config) / 10**12, 0, 0
    if config.decoder_block in (DecoderBlockType.DEEPSEEK, DecoderBlockType.LLAMA4):
        return config.first_num_dense_layers / 10**12, 0, 0
    return calculate_ffn(config) * 3 / 10**12, 0, 0
"""


def test_maxtexts_function_is_taken_with_those_that_it_calls_and_without_jax(tmp_path: Path) -> None:
    (tmp_path / "maxtext" / "utils").mkdir(parents=True)
    (tmp_path / "maxtext" / "utils" / "maxtext_utils.py").write_text(MAXTEXT)
    names = ("llama-3-8b", "gpt2", "gemma-3-1b", "deepseek-v3", "bert-base")
    answers = ask("maxtext", [tmp_path], [Question(architectures()[name], 999) for name in names], 60)
    assert [Fraction(each["flop"]) for each in answers[:4]] == [
        3 * 2 * 999 * 14_336 * 4096 * 2,  # a gate and its values
        3 * 2 * 999 * 3072 * 768,
        999 * 512 - Fraction(512**2, 2),
        3,
    ]
    assert answers[4]["reason"] == "ValueError: MaxText trains decoders, and none of this form"
    (tmp_path / "maxtext" / "utils" / "maxtext_utils.py").write_text("def another(): pass")
    (answer,) = ask("maxtext", [tmp_path], [Question(architectures()["gpt2"], 8)], 60)
    assert answer["reason"] == "ImportError: maxtext_utils.py has no function calculate_tflops_training_per_device"
