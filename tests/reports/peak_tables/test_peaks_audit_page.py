"""docs/peaks-audit.md is what the kept answers and our table say now."""

from __future__ import annotations

from benchmarks.pages.peaks.audit import PAGE, page
from measure.peak_tables import ABSENT, TABLES
from reports.peak_tables import PackageAnswers, audit_rows, markdown_page, read_answers, write_answers

H100 = "NVIDIA H100 80GB HBM3"


def test_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m benchmarks.pages.peaks.audit --write"


def test_every_package_is_kept_and_at_least_ten_answered():
    kept = read_answers(())
    assert [each.package for each in kept] == [*TABLES, *ABSENT]
    assert sum(bool(each.said) for each in kept) >= 10


def test_answers_come_back_as_they_were_kept(tmp_path):
    answers = [
        PackageAnswers("a", "1", {(H100, "bf16"): 989e12, (H100, "fp8"): None}, {(H100, "fp8"): "why"}, by_rate=True),
        PackageAnswers("b", None, reason="not there"),
    ]
    write_answers(answers, tmp_path / "kept.csv")
    assert read_answers(["a"], tmp_path / "kept.csv") == answers


def test_a_row_has_what_is_said_and_what_is_ours():
    answers = [PackageAnswers("a", "1", {(H100, "bf16"): 1979e12}), PackageAnswers("b", None, reason="not there")]
    first, absent = audit_rows(answers)
    assert (first["said_flop_per_s"], first["ours_flop_per_s"], first["verdict"]) == (1979e12, 989.4e12, "wrong")
    assert "sparsity" in first["took"]
    assert (absent["verdict"], absent["reason"], absent["device_name"]) == ("absent", "not there", None)
    assert first.keys() == absent.keys()


def test_formats_with_one_figure_share_a_line_and_notes_are_sentences():
    said = {(H100, "bf16"): 312e12, (H100, "fp16"): 312e12}
    text = markdown_page([PackageAnswers("a", "1", said)], {"a": "one constant"})
    assert f"| {H100} | bf16, fp16 | 312 | 989.4 | that of NVIDIA A100-SXM4-80GB |" in text
    assert "### a 1\n\nOne constant.\n" in text
    assert "| a | 1 | 0 | 2 | 0 | 0 | 0 |" in text
