"""Definition, known answer, injected fault: `runners.formula` on small models and against Catamount; its refusals."""

import csv
import io
import json
import re
import shlex

import pandas
import pytest
import sympy

from runners import footprint as footprint
from runners import formula as command
from tests.support.fakes.commands import refused, running, telling

NETS = '''
import time
from pathlib import Path

import torch
from torch import nn


def small(width=8):
    """width → 6 → 3, with biases."""
    return nn.Sequential(nn.Linear(width, 6), nn.ReLU(), nn.Linear(6, 3)), (torch.randn(1, width),)


def own_words(batch=2, input=3, width=8):
    """width → 3: its own words are those of the command line, and mean something else."""
    return nn.Linear(width, input, bias=False), (torch.randn(batch, width),)


def gated(width=8):
    return nn.Sequential(nn.Sigmoid(), nn.Tanh(), nn.Linear(width, 3, bias=False)), (torch.randn(1, width),)


def normed(width=8):
    layers = nn.Linear(width, width), nn.BatchNorm1d(width), nn.Linear(width, width)
    return nn.Sequential(*layers), (torch.randn(2, width),)


def even(width=8):
    if width % 2:
        raise ValueError(f"only even widths, got {width}")
    return nn.Linear(width, width), (torch.randn(1, width),)


class Far(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, x):
        x = self.first(x)
        x = torch.relu(x) if x.shape[-1] < 500 else torch.tanh(x)  # far: 500
        return self.second(x)


class Near(Far):
    def forward(self, x):
        x = self.first(x)
        if self.wide(x):  # near: 13
            x = torch.tanh(x)
        return self.second(x)

    def wide(self, x):
        return x.shape[-1] > 12


class Built(Far):
    def __init__(self, width):
        super().__init__(width)
        if width > 20:  # built: 21
            self.second = nn.Linear(width, 3, bias=False)

    def forward(self, x):
        return self.second(self.first(x))


class Values(Far):
    def forward(self, x):
        x = self.first(x)
        if x.sum() > 0:  # values
            x = torch.tanh(x)
        return self.second(x)


class Looped(Far):
    def __init__(self, steps):
        super().__init__(4)
        self.steps = steps

    def forward(self, x):
        for _ in range(1 + self.steps**2 % 7):  # looped
            x = self.first(x)
        return self.second(x)


def far(width=640):
    return Far(width), (torch.randn(1, width),)


def near(width=64):
    return Near(width), (torch.randn(1, width),)


def built(width=64):
    return Built(width), (torch.randn(1, width),)


def values(width=8):
    return Values(width), (torch.randn(1, width),)


def looped(steps=3):
    return Looped(steps), (torch.randn(1, 4),)


def patched(image=32):
    """Patches of 16 × 16, what is over left out: their number changes every 16 pixels."""
    layers = nn.Conv2d(3, 4, 16, 16), nn.Flatten(2), nn.Softmax(-1)
    return nn.Sequential(*layers), (torch.randn(1, 3, image, image),)


def heads(width=24, heads=2):
    if width % heads:
        raise ValueError("heads must divide the width")
    return nn.Linear(width, width), (torch.randn(1, width),)


def broken(width=4):
    raise RuntimeError("no such thing")


def slow(width=4):
    Path(__file__).with_name("started").touch()
    time.sleep(600)
'''

KEYS = (
    "symbols", "parameters", "model_flop", "all_flop", "bytes_accessed", "total_footprint_bytes",
    "minimal_footprint_bytes", "io_bytes", "at", "values",
)  # fmt: skip
"""As issue 7 lists them."""

FORMULAS = (*KEYS[1:-2], "kept_bytes", "eager_footprint_bytes", "operational_intensity")

CHAIN = "synthetic_matmul"


@pytest.fixture
def nets(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    return f"{tmp_path / 'nets.py'}:"


@pytest.fixture
def run(capsys):
    """run(…arguments) → (exit code, stdout, stderr)."""
    return running(command.main, capsys)


@pytest.fixture
def asked(capsys):
    """asked(…arguments) → what --format json tells."""
    return telling(command.main, capsys)


def read(text):
    """A formula as sympy reads it, in symbols without assumptions: batch, not a function of sympy's."""
    return sympy.sympify(text, locals={name: sympy.Symbol(name) for name in re.findall(r"[a-z_]+", text)
                                       if name not in ("floor", "ceiling", "Max", "Min")})  # fmt: skip


def test_an_argument_with_the_name_of_an_option_stays(asked, nets):
    """Forward 2 · batch · width · 3, and as much for the weight's gradient: the input is data."""
    found = asked(f"{nets}own_words")
    assert found["symbols"] == ["batch", "width"]
    assert sympy.expand(read(found["model_flop"]) - read("12*batch*width")) == 0


def at(text, point):
    return read(text).subs({sympy.Symbol(name): value for name, value in point.items()})


def line_of(mark):
    """The line of NETS that a comment marks."""
    return next(number for number, text in enumerate(NETS.splitlines(), 1) if f"# {mark}" in text)


class TestFormats:
    def test_json_has_the_keys_of_the_issue_and_formulas_that_evaluate_to_the_values(self, asked):
        found = asked(CHAIN, "--at", "width=10,depth=3,batch=7")
        assert set(KEYS) <= set(found)
        assert found["symbols"] == ["batch", "width", "depth"]
        assert found["at"] == {"batch": 7, "width": 10, "depth": 3}
        for key in FORMULAS:
            value = at(found[key], found["at"])
            assert value == found["values"][key] or float(value) == found["values"][key]
        # three layers of 10 × 10 at a batch of 7: 2·7·100 each, forward, and twice that but for the first's input
        assert found["values"]["model_flop"] == 1400 * (3 + 6 - 1)
        assert found["values"]["parameters"] == 300
        assert found["values"]["io_bytes"] == 2 * 4 * 7 * 10


class TestQuestions:
    @pytest.mark.parametrize("by", ["phase", "kind", "module", "operation"])
    def test_parts_add_up(self, asked, by):
        found = asked(CHAIN, "--symbols", "batch,width", "--by", by)
        assert found["by"] == by
        for key in ("model_flop", "all_flop", "bytes_accessed"):
            assert sympy.expand(sum(read(part[key]) for part in found["parts"]) - read(found[key])) == 0
        if by == "phase":
            assert [part["phase"] for part in found["parts"]] == ["forward", "loss", "backward", "optimizer"]

    def test_a_fused_chain_does_not_write_what_is_between(self, asked, nets):
        """Sigmoid's batch × width floats, which nothing else reads as no gradient goes there: not written, not read.

        Of the loss's gradient, a 1 that is made (4 + 4 bytes), expanded to batch × 3 and divided (12 + 12 a sample), 4
        and 12 a sample are left.
        """
        alone, fused = (asked(f"{nets}gated", "--optimizer", "sgd-plain", *more) for more in ((), ("--fused",)))
        b, w = (sympy.Symbol(name) for name in ("batch", "width"))
        saved = read(alone["bytes_accessed"]) - read(fused["bytes_accessed"])
        assert sympy.expand(saved - 2 * 4 * b * w - 12 * b - 4) == 0
        assert [fused[key] for key in ("model_flop", "all_flop")] == [alone[key] for key in ("model_flop", "all_flop")]
        assert "one each" in " ".join(fused["notes"])
        assert "one each" not in " ".join(alone["notes"])

    def test_several_solutions_in_the_order_of_the_questions(self, asked):
        """At depth 4 there are 11 products of 2·width² a sample, 4·width² parameters, and 8·batch·width bytes go in:
        2·11·1024²·b ≤ 10⁹ up to 43; 4·w² ≤ 1000 up to 15; 8·32·w ≥ 3000 from 12 on."""
        questions = ("flop <= 1 GFLOP for batch", "parameters <= 1000 for width", "io >= 3000 B for width")
        found = asked(CHAIN, *(word for question in questions for word in ("--solve", question)))["solutions"]
        assert [each["asked"] for each in found] == list(questions)
        assert [(each["symbol"], each["value"], each["end"]) for each in found] == [
            ("batch", 43, "largest"), ("width", 15, "largest"), ("width", 12, "smallest"),
        ]  # fmt: skip

    def test_a_device_gives_time_and_ridge(self, asked):
        """In fp32 an H200 makes 67 TFLOP/s and moves 4.8 TB/s: 13.96 FLOP/B. The time is the larger of both bounds.

        As 22·1024²·b FLOP over 110592·b + 230686736 bytes reach that from b = 149.6 on: 150."""
        found = asked(CHAIN, "--symbols", "batch", "--device", "NVIDIA H200",
                      "--solve", "time <= 1 ms for batch", "--solve", "flop / bytes >= ridge for batch")  # fmt: skip
        time_, ridge = found["solutions"]
        flop, moved = (at(found[key], {"batch": time_["value"]}) for key in ("model_flop", "bytes_accessed"))
        assert time_["left"] == pytest.approx(max(float(flop) / 67e12, float(moved) / 4.8e12))
        assert (time_["end"], ridge["end"]) == ("largest", "smallest")
        assert time_["left"] <= 1e-3
        assert ridge["right"] == pytest.approx(67 / 4.8)
        assert ridge["value"] == 150

    def test_a_sweep_is_csv_with_a_row_a_point(self, run):
        code, out, _ = run(CHAIN, "--symbols", "batch,width", "--sweep", "batch=1:4,width=8:32:*2", "--format", "csv")
        assert code == 0
        table = pandas.read_csv(io.StringIO(out))
        assert len(table) == 4 * 3
        assert list(table.model_flop) == list(22 * table.batch * table.width**2)  # 2 · 11 products


class TestSteps:
    def test_by_the_rules_of_catamount_its_published_numbers(self, asked):
        """wordlm at its base sizes, where Catamount's own tests assert these numbers."""
        found = asked("wordlm", "--rules", "catamount", "--at", "hidden=2004,vocab=10004,seq=80,batch=64")
        assert (found["rules"], found["optimizer"]) == ("catamount", "sgd-plain")
        names = ("parameters", "all_flop", "bytes_accessed", "total_footprint_bytes")
        printed = (104_378_326, 2_597_058_084_257, 143_652_774_404, 49_660_373_192)
        assert tuple(found["values"][name] for name in names) == printed
        for name, value in zip(names, printed, strict=True):
            assert at(found[name], found["at"]) == value
        assert found["symbols"] == ["batch", "hidden", "vocab", "seq"]  # two layers, as its graph has
        assert {"name", "quantity", "formula", "why"} == set(found["terms"][0])

    def test_a_step_in_fp16_scales_its_loss_as_that_of_the_footprint_does(self, asked, capsys):
        values = asked(CHAIN, "--symbols", "batch,width", "--precision", "amp-fp16")["values"]
        words = [CHAIN, "--precision", "amp-fp16", "--device", "cpu", "--format", "json"]
        assert footprint.main(words) == 0
        found = json.loads(capsys.readouterr().out)
        assert values["eager_footprint_bytes"] == found["eager_peak_bytes"]
        assert values["minimal_footprint_bytes"] == found["minimal_bytes"]

    def test_frozen_weights_have_no_gradient_and_checkpointed_modules_run_again(self, asked, nets):
        b, w = sympy.Symbol("batch"), sympy.Symbol("width")
        whole, frozen, again = (
            read(asked(f"{nets}small", *more)["model_flop"]) for more in ((), ("--frozen", "0"), ("--checkpoint", "0"))
        )
        # w·6 and 6·3 multiply-adds: forward both, backward the weight of the first and both of the second
        assert sympy.expand(whole) == sympy.expand(2 * b * (2 * 6 * w + 3 * 18))
        assert sympy.expand(whole - frozen) == sympy.expand(2 * b * (6 * w + 18))  # nor does anything pass to it
        assert sympy.expand(again - whole) in (0, sympy.expand(2 * b * 6 * w))

    def test_sizes_that_are_no_symbols_are_fixed_by_options(self, asked):
        found = asked(CHAIN, "--symbols", "width", "--size", "depth=2", "--batch-size", 3)
        assert found["symbols"] == ["width"]
        assert read(found["model_flop"]) == 5 * 2 * 3 * sympy.Symbol("width") ** 2
        assert found["at"] == {"width": 1024}


class TestModels:
    def test_a_model_that_cannot_be_trained_at_a_batch_of_one(self, run, asked, nets):
        (note,) = asked(f"{nets}normed")["notes"]
        assert note.startswith("The formulas do not hold for a batch of one: ")
        assert "Expected more than 1 value per channel when training" in note
        refused(run(f"{nets}normed", "--at", "batch=1"), "Expected more than 1 value per channel", "batch 1, width 8")

    def test_what_is_rounded_further_out_is_found_by_the_far_point(self, asked, nets):
        """Of 32 pixels 2 · 2 patches; floor(image ÷ 16) is 2 up to 47, beyond the first points of the axis."""
        found = asked(f"{nets}patched", "--at", "image=80")
        b, image = sympy.Symbol("batch"), sympy.Symbol("image")
        patches = sympy.floor(image / 16) ** 2
        # 16·16·3·4 multiply-adds a patch, forward and for the weight
        assert sympy.expand(read(found["model_flop"]) - 2 * 2 * b * 3072 * patches) == 0
        assert found["values"]["model_flop"] == 4 * 32 * 3072 * 25


class TestBranches:
    """No one formula holds: the line says between which sizes, and by which operation."""

    def test_a_branch_within_the_first_points(self, run, nets):
        refused(
            run(f"{nets}near"),
            "the operations change between width 5 and width 16: aten.tanh in the model itself",
            code=1,
        )

    def test_a_branch_where_the_model_is_built(self, run, nets):
        refused(
            run(f"{nets}built"),
            "between batch 3, width 5 and batch 111, width 150: aten.mm in second (forward)",
            code=1,
        )

    def test_a_number_of_operations_that_follows_no_formula(self, run, nets):
        """steps² % 7 of 2, 3, 4 is 4, 2, 2: five products and three more than the other layer's."""
        refused(run(f"{nets}looped"), "no formula in steps was found", code=1)

    def test_a_branch_on_values_and_a_detector_have_no_fake_step(self, run, nets):
        refused(run(f"{nets}values"), "its control flow depends on a value that is read from a tensor",
                f"nets.py:{line_of('values')} in forward", code=1)  # fmt: skip
        refused(run("fasterrcnn_resnet50_fpn", "--symbols", "batch"), "fasterrcnn_resnet50_fpn at batch 32: ", code=1)


MISTAKES = [
    (f"{CHAIN} --symbols widht", "--symbols: synthetic_matmul: unknown symbol: expected batch, width or depth, "
                                 "got 'widht', nearest width"),
    (f"{CHAIN} --symbols ,batch", "expected symbol names separated by commas"),
    (f"{CHAIN} --at deep=3", "--at: unknown symbol: expected batch, width or depth, got 'deep', nearest depth"),
    (f"{CHAIN} --at width", "--at: expected NAME=VALUE"),
    (f"{CHAIN} --at width=-3", "--at: expected whole numbers of at least 1, got '-3'"),
    (f"{CHAIN} --symbols batch --at width=3", "width is a size of the model: name it in --symbols"),
    (f"{CHAIN} --solve garbage", "--solve: expected QUANTITY <= NUMBER UNIT for SYMBOL"),
    (f"{CHAIN} --solve 'kept <= 1 banana for batch'", "--solve: unknown unit", "'banana'"),
    (f"{CHAIN} --solve 'kept <= 1 GiB for dept'", "nearest depth"),
    (f"{CHAIN} --solve 'kept <= 1 s for batch'", "--solve: "),
    (f"{CHAIN} --solve 'time <= 1 s for batch'", "name one with --device"),
    (f"{CHAIN} --solve '__import__(1) <= 1 for batch'", "--solve: unknown function", "'__import__'"),
    (f"{CHAIN} --solve 'kept <= 1e400 for batch'", "expected numbers up to 1e300"),
    (f"{CHAIN} --solve 'kept.x <= 1 for batch'", "--solve: expected a formula, got 'kept.x'"),
    (f"{CHAIN} --sweep batch", "--sweep: expected NAME=VALUE"),
    (f"{CHAIN} --sweep bath=1:3", "--sweep: unknown symbol", "nearest batch"),
    (f"{CHAIN} --sweep batch=9:1", "--sweep: expected FIRST:LAST"),
    (f"{CHAIN} --sweep batch=1:1000,width=1:1000,depth=1:9", "--sweep: expected at most 1,000,000 points"),
    (f"{CHAIN} --device H1000", "--device: ", "'H1000'"),
    (f"{CHAIN} --rules catamont", "nearest catamount"),
    (f"{CHAIN} --optimizer adamm", "nearest adam"),
    (f"{CHAIN} --precision fp8", "--precision"),
    (f"{CHAIN} --by layer", "--by"),
    (f"{CHAIN} --batch-size 0", "--batch-size"),
    (f"{CHAIN} --size input=3", "--size: expected a size, got input, which is set by --input"),
    (f"{CHAIN} --size foo=3", "synthetic_matmul has no foo; it has width, depth"),
    (f"{CHAIN} --frozen nothing", "--frozen: no parameter matches 'nothing'"),
    (f"{CHAIN} --checkpoint nothing", "--checkpoint: no module matches 'nothing'"),
    ("wordlm --rules catamount --symbols batch,layers", "Catamount's graph of wordlm has layers 2 and no other"),
    ("wordlm --rules catamount --fused", "--fused: Catamount's rules are of operations by themselves"),
    ("wordlm --rules catamount --size layers=3", "Catamount's graph of wordlm has layers 2, got 3"),
    ("resnet5", "resnet50"),
]  # fmt: skip


class TestRefusals:
    @pytest.mark.parametrize("words", MISTAKES, ids=lambda words: words[0])
    def test_a_mistake_is_one_line_before_anything_is_slow(self, run, monkeypatch, words):
        from runners import formula_points

        if not any(option in words[0] for option in ("--frozen", "--checkpoint")):  # these need the model
            monkeypatch.setattr(formula_points, "step_at", None)  # what is slow
        refused(run(*shlex.split(words[0])), *words[1:])

    def test_what_has_no_solution(self, run):
        answer = run(CHAIN, "--symbols", "batch", "--solve", "kept <= 1 B for batch")
        refused(answer, "--solve: no batch satisfies kept <= 1 B: even batch=1 has 32.02 MiB")
        refused(
            run(CHAIN, "--symbols", "batch", "--solve", "parameters <= 9 for batch"), "no batch satisfies parameters"
        )

    def test_a_symbol_of_one_value_is_left_out_unless_it_was_asked_for(self, run, asked, nets):
        """Of a width of 24, 2, 3 and 4 heads are a part, but not of its neighbours."""
        found = asked(f"{nets}heads")
        assert found["symbols"] == ["batch", "width"]
        assert found["holds_for"][1]["step"] == 2
        assert "heads stays 2, as the model takes no neighbour of it with these." in found["notes"]
        refused(run(f"{nets}heads", "--symbols", "width,heads"), " cannot be other than ", "heads must divide", code=1)


def test_a_sweep_has_what_is_at_least_known(capsys: pytest.CaptureFixture[str]) -> None:
    """oneDNN's LSTM keeps a workspace of no known size: bytes are at least those of all other storages."""
    words = ["wordlm", "--symbols", "batch,hidden", "--sweep", "hidden=512:1024:512", "--at", "batch=64"]
    assert command.main([*words, "--format", "csv"]) == 0
    first, second = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert "bytes_accessed" not in first
    assert 0 < int(first["at_least_bytes_accessed"]) < int(second["at_least_bytes_accessed"])
