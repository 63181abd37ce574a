"""Known answer, definition, command: two runs compared, by simulated truths, scipy's tests and golden output."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from analysis.stats.comparison import difference, holm, relative_difference, verdict
from benchmarks.paired import compared
from reports.compare.cells import _group, compare_runs
from results.records.answers import FASTER, SAME, SLOWER, UNKNOWN
from results.records.cell import Sample
from results.store.layout import key_of
from results.store.store import read_run
from runners import report as command
from tests.support.fakes.commands import refused, running
from tests.support.made_up import made_up_evidence
from tests.support.made_up.made_up_evidence import REPEATED, slower

MARGIN = 0.03
CELLS, BLOCKS = 8, 12
MEAN_S = 0.1


def blocks(rng: np.random.Generator, mean_s: float, spread: float, r: float = 0.0) -> tuple[float, ...]:
    """Block means about `mean_s` whose relative standard deviation is `spread`, neighbours correlated by r."""
    noise = rng.standard_normal(BLOCKS)
    for i in range(1, BLOCKS):
        noise[i] = r * noise[i - 1] + math.sqrt(1 - r * r) * noise[i]
    return tuple(mean_s * (1 + spread * noise))


def told(rng: np.random.Generator, ratio: float, spread: float, processes: int, apart: float, r: float) -> list[str]:
    """The verdicts on CELLS cells whose true ratio is known. apart: relative deviation of processes' true means."""
    found = []
    for _ in range(CELLS):
        sides = [
            [blocks(rng, mean_s * (1 + apart * rng.standard_normal()), spread, r) for _ in range(processes)]
            for mean_s in (MEAN_S, MEAN_S * ratio)
        ]
        found.append(difference(*sides, MARGIN))
    adjusted = zip(holm([d.p_different for d in found]), holm([d.p_same for d in found]), strict=True)
    return [verdict(d.ratio, p, q) for d, (p, q) in zip(found, adjusted, strict=True)]


@pytest.mark.parametrize(
    ("processes", "apart", "r", "ratio", "comparisons"),
    [
        (1, 0.0, 0.0, 1 + MARGIN, 150),  # the worst of what one process may not call different
        (1, 0.0, 0.4, 1.0, 150),
        (1, 0.005, 0.0, 1.0, 150),
        (5, 0.01, 0.0, 1.0, 60),
    ],
    ids=["at the margin", "blocks that are alike", "processes that differ", "five processes"],
)
def test_equal_runs_are_called_different_in_no_more_than_5_of_100(
    processes: int, apart: float, r: float, ratio: float, comparisons: int
) -> None:
    """Each comparison is of 8 cells; allowed is the 99th percentile of a binomial of 5 %: 14 of 150, 7 of 60."""
    rng = np.random.default_rng(20261122)
    wrong = sum(
        any(word in (FASTER, SLOWER) for word in told(rng, ratio, 0.02, processes, apart, r))
        for _ in range(comparisons)
    )
    assert wrong <= stats.binom.ppf(0.99, comparisons, 0.05)


def test_runs_that_differ_by_the_margin_are_called_the_same_in_no_more_than_5_of_100() -> None:
    rng = np.random.default_rng(20261123)
    wrong = sum(SAME in told(rng, 1 + MARGIN, 0.02, 1, 0.0, 0.0) for _ in range(150))
    assert wrong <= stats.binom.ppf(0.99, 150, 0.05)


@pytest.mark.parametrize(("ratio", "word"), [(1.12, SLOWER), (0.88, FASTER), (1.0, SAME)])
@pytest.mark.parametrize("processes", [1, 5])
def test_what_is_plain_is_found(ratio: float, word: str, processes: int) -> None:
    rng = np.random.default_rng(7)
    assert told(rng, ratio, 0.01, processes, 0.002, 0.0) == [word] * CELLS


def test_five_processes_against_five_is_welchs_test_on_their_means() -> None:
    """Equal to scipy's on means of processes, to the second order of the logarithm."""
    rng = np.random.default_rng(9)
    a = [blocks(rng, MEAN_S * (1 + 0.01 * rng.standard_normal()), 1e-4) for _ in range(5)]
    b = [blocks(rng, 1.02 * MEAN_S * (1 + 0.01 * rng.standard_normal()), 1e-4) for _ in range(5)]
    found = difference(a, b, MARGIN)
    welch = stats.ttest_ind([np.mean(each) for each in a], [np.mean(each) for each in b], equal_var=False)
    assert found.basis == "processes"
    assert found.p_different == pytest.approx(welch.pvalue, rel=0.05)
    low, high = welch.confidence_interval()
    ends = [math.log(end) for end in found.interval()]
    assert ends == [pytest.approx(-high / MEAN_S, abs=0.001), pytest.approx(-low / MEAN_S, abs=0.001)]


def test_one_process_against_several_goes_by_blocks_of_all_of_them() -> None:
    """Three processes of equal blocks: their mean's error is that of one ÷ √3, and what they differ by is not in it."""
    rng = np.random.default_rng(11)
    alone, times = [blocks(rng, 1.0, 1e-9)], blocks(rng, 1.0, 0.02)
    scaled = [tuple(factor * time for time in times) for factor in (0.9, 1.0, 1.1)]
    one, three = difference(alone, [times], MARGIN), difference(alone, scaled, MARGIN)
    assert (one.basis, three.basis) == ("blocks", "blocks")
    assert three.ratio == pytest.approx(one.ratio)

    # by hand: √(0.9² + 1 + 1.1²) ÷ 3 of the error of one, and about three times its degrees of freedom
    assert three.degrees == pytest.approx(3 * one.degrees, rel=0.03)
    assert three.error_ratio / one.error_ratio == pytest.approx(math.sqrt(0.81 + 1 + 1.21) / 3, rel=0.01)


def test_edges() -> None:
    single = difference([(1.0,)], [(2.0,)], MARGIN)
    assert (single.ratio, single.interval()[0], single.p_different, single.p_same) == (2.0, None, None, None)
    assert verdict(single.ratio, None, None) == UNKNOWN
    alike = difference([(1.0,) * 4], [(1.0,) * 4], MARGIN)
    assert verdict(alike.ratio, alike.p_different, alike.p_same) == SAME
    exact = difference([(1.0,) * 4], [(1.5,) * 4], MARGIN)
    assert verdict(exact.ratio, exact.p_different, exact.p_same) == SLOWER


def test_holm_by_hand() -> None:
    """0.01 × 3, 0.02 × 2, 0.9 × 1 of three known ones: never below an earlier one."""
    assert holm([0.02, None, 0.9, 0.01]) == [pytest.approx(0.04), None, pytest.approx(0.9), pytest.approx(0.03)]
    assert holm([0.03, 0.01, 0.02]) == [pytest.approx(0.04), pytest.approx(0.03), pytest.approx(0.04)]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


# --- sessions, relative to a ceiling ---


@pytest.mark.parametrize(
    ("noise", "cells", "sessions"), [("of these runs", 26, 3), ("of these runs", 26, 1), ("quiet", 4, 3)]
)
def test_equal_runs_by_sessions_are_called_different_in_no_more_than_5_of_100(
    noise: str, cells: int, sessions: int
) -> None:
    """Allowed is the 99th percentile of a binomial of 5 % of 60: 7."""
    rng = np.random.default_rng(20261130)
    sides = [[compared.drawn(rng, cells, sessions, noise) for _ in "ab"] for _ in range(60)]
    wrong = sum(bool({FASTER, SLOWER} & set(compared.verdicts(*pair).values())) for pair in sides)
    assert wrong <= stats.binom.ppf(0.99, 60, 0.05)


@pytest.mark.parametrize("cells", [1, 4, 26])
def test_three_quiet_sessions_a_side_find_5_percent_in_90_of_100(cells: int) -> None:
    rng, words = np.random.default_rng(20261201), []
    for _ in range(100 // cells + 10):
        a, b = (compared.drawn(rng, cells, 3, "quiet", more) for more in (0.0, 0.05))
        words += compared.verdicts(a, b).values()
    assert words.count(SLOWER) >= 0.9 * len(words)


def test_the_error_of_sessions_by_hand() -> None:
    """Own variance 0.0001 of two degrees on each side, pooled 0.0004 of 24: twenty degrees of others at most."""
    a, b = ([[(shift + log, 0.0)] for log in (-0.01, 0.0, 0.01)] for shift in (0.0, 0.05))
    answer = relative_difference(a, b, (0.0004, 24), MARGIN)
    assert (answer.ratio, answer.degrees, answer.basis) == (pytest.approx(math.exp(0.05)), 24, "sessions")
    # the pooled variance is the larger one; 1/3 + 1/3 by sessions, and 2 for hours that no session saw
    assert answer.error_ratio == pytest.approx(math.sqrt(0.0004 * (2 / 3 + 2)))
    alone = relative_difference(a[:1], b[:1], (0.0, 0), MARGIN)
    assert alone.error_ratio == pytest.approx(math.log(1.03) / 2 * 2), "half the margin, by √4"
    wide = relative_difference([[(0.0, 0.3)]], [[(0.0, 0.5)]], (0.0, 0), MARGIN)
    assert wide.error_ratio == pytest.approx(math.sqrt(0.4 * 4)), "what the windows themselves do not know"


# --- runs ------------------------------------------------------------------------------------------------------------

FP32, TF32 = ("fp32", 8, 0), ("tf32", 8, 0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("runs")
    other = made_up_evidence.parts(REPEATED)
    other.sessions = [replace(other.sessions[0], torch_version="2.14.0")]
    return {
        "a": made_up_evidence.write(folder / "a", made=made_up_evidence.parts(REPEATED)),
        "slow": made_up_evidence.write(
            folder / "slow", made=slower(made_up_evidence.parts((*REPEATED, ("tf32", 16, 0))), 1.1)
        ),
        "torch": made_up_evidence.write(folder / "torch", made=other),
        "card": made_up_evidence.write(folder / "card", made=made_up_evidence.parts(REPEATED, "NVIDIA H200 NVL")),
        "tf32": made_up_evidence.write(folder / "tf32", made=made_up_evidence.parts((TF32,))),
        "fp32": made_up_evidence.write(folder / "fp32", made=made_up_evidence.parts((FP32,))),
    }


def test_a_run_against_itself_is_the_same(runs: dict[str, Path]) -> None:
    rows = compare_runs(read_run(runs["a"]), read_run(runs["a"]))
    assert [(row.verdict, row.ratio) for row in rows] == [(SAME, 1.0)] * 2
    assert [row.basis for row in rows] == ["processes", "blocks"]
    assert [len(row.cells_a) for row in rows] == [2, 1]


@pytest.mark.parametrize("time_s", [0.0, -1.0, math.inf, math.nan])
def test_a_block_without_a_time_above_0_leaves_its_run_out(runs: dict[str, Path], time_s: float) -> None:
    data = read_run(runs["a"])
    run = data.runs[0]
    mine = data.by_cell(Sample)[key_of(run)]
    at = next(place for place, each in enumerate(mine) if each.part == "measure" and not each.work)
    wrong = [*mine[:at], replace(mine[at], wall_s=time_s, device_s=time_s), *mine[at + 1 :]]
    assert [len(_group([run], {key_of(run): rows}).times) for rows in (mine, wrong)] == [1, 0]


@pytest.mark.parametrize(
    ("other", "field", "values"),
    [("torch", "torch_version", "'2.15.0' in A and '2.14.0' in B"), ("card", "device_name", "'NVIDIA H200 NVL' in B")],
)
def test_what_cannot_be_compared_is_refused_by_name(runs: dict[str, Path], other: str, field: str, values: str) -> None:
    a, b = read_run(runs["a"]), read_run(runs[other])
    with pytest.raises(ValueError, match=rf"cannot be compared: {field} is .*{values}"):
        compare_runs(a, b)
    assert {row.verdict for row in compare_runs(a, b, across=(field,))} == {SAME}


def test_runs_with_other_threads_say_how_both_get_as_many(tmp_path: Path) -> None:
    made = [made_up_evidence.parts((FP32,)) for _ in "ab"]
    for parts, threads in zip(made, (1, 2), strict=True):
        parts.sessions = [replace(parts.sessions[0], environment={"torch_threads": threads})]
    a, b = (
        read_run(made_up_evidence.write(tmp_path / name, made=parts)) for name, parts in zip("ab", made, strict=True)
    )
    with pytest.raises(ValueError, match=r"torch_threads is '1' in A and '2' in B .*; OMP_NUM_THREADS=N before both"):
        compare_runs(a, b)


def test_cells_that_differ_in_precision_are_compared_only_on_demand(runs: dict[str, Path]) -> None:
    a, b = read_run(runs["fp32"]), read_run(runs["tf32"])
    with pytest.raises(ValueError, match="no cell in common: precision is 'fp32' in A and 'tf32' in B"):
        compare_runs(a, b)
    (row,) = compare_runs(a, b, across=("precision",))
    assert row.verdict == FASTER
    assert row.ratio == pytest.approx(made_up_evidence.step_s("tf32", 8) / made_up_evidence.step_s("fp32", 8))
    with pytest.raises(ValueError, match="expected one value of precision for resnet50 b8, A has several"):
        compare_runs(read_run(runs["a"]), b, across=("precision",))


THREE = tuple(("tf32", 8, repeat) for repeat in range(3))


def beside_a_ceiling(steps: float, kernels: float, sessions: int = 3) -> made_up_evidence.Parts:
    """Each repeat in a session of its own, with a kernel's block of 1 PFLOP beside each block. steps, kernels: times as
    long as before."""
    parts = slower(made_up_evidence.parts(THREE[:sessions]), steps)
    parts.sessions = [made_up_evidence.session(name=f"s{n}") for n in range(1, sessions + 1)]
    for n, part in enumerate(parts.cells.values(), 1):
        part.run = replace(part.run, session=f"s{n}")
        ceiling = {"part": "ceiling", "unit": "tf32", "kernel": "convolution", "flop": 10**15, "steps": 1}
        beside = [
            replace(s, **ceiling, index=s.index + 100, start_s=s.start_s + s.wall_s, wall_s=2.7 * kernels,
                    device_s=2.7 * kernels * (1 + 0.002 * n))
            for s in part.samples
        ]  # fmt: skip
        part.samples = [*part.samples, *beside]
    return parts


@pytest.mark.parametrize(
    ("steps", "kernels", "sessions", "word"),
    [
        (1.4, 1.4, 3, SAME),
        (1.05, 1.0, 3, SLOWER),
        (1.0, 1.05, 3, FASTER),
        (1.05, 1.0, 1, UNKNOWN),
        (1.4, 1.0, 1, SLOWER),
    ],
    ids=["a slow hour", "a slower step", "a slower kernel", "one session", "one session and much"],
)
def test_beside_a_ceiling_what_slows_both_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: float, kernels: float, sessions: int, word: str
) -> None:
    a = made_up_evidence.write(tmp_path / "a", made=beside_a_ceiling(1.0, 1.0, sessions))
    b = made_up_evidence.write(tmp_path / "b", made=beside_a_ceiling(steps, kernels, sessions))
    (row,) = compare_runs(read_run(a), read_run(b))
    assert (row.verdict, row.basis, row.ratio) == (word, "sessions", pytest.approx(steps / kernels))
    assert row.time_b_s == pytest.approx(steps * row.time_a_s), "times are as they were measured"
    code, out, _ = running(command.main, capsys)(a, b, "--fail-if", "slower:2%")
    assert code == (5 if word == SLOWER else 0)
    if word == UNKNOWN:
        # half the margin of 3 % by √4, of ten degrees
        least = 100 * math.expm1(stats.t.ppf(0.975, 10) * math.log(1.03))
        assert row.reason.startswith(f"cannot tell below {least:.2g} %; one session on a side")
        assert f"cannot tell below {least:.2g} %" in " ".join(out.split())


def test_step_times_are_weighted_by_steps_as_in_the_report(tmp_path: Path) -> None:
    made = made_up_evidence.parts()
    for part in made.cells.values():
        part.samples = [replace(s, steps=3 * s.steps) if s.index == 0 else s for s in part.samples]
    run = read_run(made_up_evidence.write(tmp_path / "a", made=made))
    row = next(row for row in compare_runs(run, run) if len(row.cells_a) == 1)
    (samples,) = (part.samples for part in made.cells.values() if (part.run.cell_id,) == row.cells_a)
    mean_s = sum(s.device_s or 0.0 for s in samples) / sum(s.steps for s in samples)
    assert (row.time_a_s, row.time_b_s) == (pytest.approx(mean_s), pytest.approx(mean_s))


def test_across_precisions_times_are_compared_and_not_what_each_reaches_of_its_own_kernel(tmp_path: Path) -> None:
    a, b = (beside_a_ceiling(1.0, 1.0) for _ in "ab")
    for part in b.cells.values():
        part.run = replace(part.run, precision="fp32")
        part.samples = [replace(s, unit="fp32") if s.unit else s for s in part.samples]
    sides = [read_run(made_up_evidence.write(tmp_path / name, made=made)) for name, made in (("a", a), ("b", b))]
    (row,) = compare_runs(*sides, across=("precision",))
    assert row.basis == "processes"


# --- the command -----------------------------------------------------------------------------------------------------

GOLDEN = """\
A: a
B: slow

model     batch  precision  B is    B ÷ A   95 % interval        A        B  blocks
resnet50      8  fp32       slower  1.100  1.100 to 1.100  5.28 ms  5.81 ms  20, 20
resnet50      8  tf32       slower  1.100  1.099 to 1.101  3.58 ms  3.93 ms  10, 10
only in B: resnet50 b16 tf32

2 cells in both: 2 slower (significance level 5 % over all of them)
same means within ±3.0 %; where both runs have repeats, the error is the scatter of their processes,
  and faster or slower means other than 1; where a side has one process, how processes differ is
  unknown, and faster or slower means beyond the margin
"""


def test_golden_output(
    runs: dict[str, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(runs["a"].parent)
    code, out, err = running(command.main, capsys)("a", "slow")
    assert (code, err) == (0, "")
    assert out == GOLDEN
    assert max(map(len, out.splitlines())) <= 100


def test_mistakes(runs: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run, a = running(command.main, capsys), runs["a"]
    refused(run(a, runs["torch"]), "torch_version is '2.15.0' in A and '2.14.0' in B", "--across")
    refused(run(a, runs["torch"], "--across", "torch_versoin"), "unknown field", "nearest torch_version")
    refused(run(a, a, a), "expected one run, or two to compare, got 3")
    refused(run(a, tmp_path / "nowhere"), "expected the directory of a run")
    refused(run(a, a, "--check"), "--check: expected one run, got 2")
    refused(run(a, "--across", "precision"), "expected two runs")
    refused(run(a, a, "--margin", "0"), "expected a number from 1e-06 to 10, got '0'")


def test_what_is_too_noisy_cannot_be_told() -> None:
    rng = np.random.default_rng(8)
    assert set(told(rng, 1.02, 0.2, 1, 0.0, 0.0)) == {UNKNOWN}


def test_one_process_says_different_only_beyond_the_margin() -> None:
    steady = [(1.0, 1.001, 0.999, 1.0, 1.001, 0.999)]
    near = [tuple(1.02 * time for time in steady[0])]
    found = difference(steady, near, MARGIN)
    assert found.basis == "blocks"
    assert found.interval()[0] > 1, "their intervals do not touch"
    assert found.p_different > 0.99
    assert verdict(found.ratio, found.p_different, found.p_same) == SAME
