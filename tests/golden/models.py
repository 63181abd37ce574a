"""Golden answers about models: counts, attributions, formulas, footprints, module trees, and the meter on small loops.

A case is the command line that gives it, so that `python -m runners.count CASE` shows the same; of the meter it is a
function of `tests/golden/loops.py`. Times, devices and versions are in none of them.
"""

import json
import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Iterator
from fractions import Fraction
from typing import Any

from tests.golden import Answer, Row, Wanted, printed

TORCHVISION = """
alexnet convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 densenet169 densenet201
efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6
efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5
mnasnet0_75 mnasnet1_0 mnasnet1_3 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf
regnet_x_32gf regnet_x_3_2gf regnet_x_400mf regnet_x_800mf regnet_x_8gf regnet_y_128gf regnet_y_16gf regnet_y_1_6gf
regnet_y_32gf regnet_y_3_2gf regnet_y_400mf regnet_y_800mf regnet_y_8gf resnet101 resnet152 resnet18 resnet34 resnet50
resnext101_32x8d resnext101_64x4d resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5
shufflenet_v2_x2_0 squeezenet1_0 squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13
vgg13_bn vgg16 vgg16_bn vgg19 vgg19_bn vit_b_16 vit_b_32 vit_h_14 vit_l_16 vit_l_32 wide_resnet101_2 wide_resnet50_2
fcn_resnet50 fcn_resnet101 lraspp_mobilenet_v3_large mc3_18 mvit_v1_b mvit_v2_s r2plus1d_18 r3d_18 s3d swin3d_b
swin3d_s swin3d_t raft_large raft_small
"""

DENSE = """
deeplabv3_mobilenet_v3_large --batch-size 2 --size image_size=65
deeplabv3_resnet50 --batch-size 2 --size image_size=65
deeplabv3_resnet101 --batch-size 2 --size image_size=65
""".strip().splitlines()

TEXT = """
seq2seq --size hidden=32,vocab=500,source_words=8,target_words=9,negatives=16
seq2seq@as_paper --size hidden=32,vocab=500,source_words=8,target_words=9,negatives=16
fathom-speech --size hidden=64,frames=40,labels=8
wordlm --size hidden=128,vocab=1000,seq=10
charlm --size hidden=128,seq=10
nmt --size hidden=128,vocab=1000,seq=7
speech --size hidden=64,attention_hidden=32,decoder_hidden=32,frames=24
word2vec --batch-size 4
bert
bert_large
gpt
""".strip().splitlines()

FATHOM = """
memnet autoenc residual fathom-vgg fathom-alexnet deepq gpt2 vit
residual@as_paper fathom-vgg@as_paper fathom-alexnet@as_paper deepq@as_paper
seq2seq@small memnet@small fathom-speech@small autoenc@small residual@small fathom-vgg@small fathom-alexnet@small
deepq@small gpt2@small vit@small seq2seq@as_paper@small fathom-speech@as_paper@small residual@as_paper@small
fathom-vgg@as_paper@small fathom-alexnet@as_paper@small deepq@as_paper@small seq2seq@fused@small
synthetic_matmul synthetic_convolution
"""

COUNTED = [*TORCHVISION.split(), *DENSE, *TEXT, *FATHOM.split()]

STEPPED = ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x0_5", "squeezenet1_1", "swin_t", "vgg11_bn")

ATTRIBUTED = """
mobilenet_v2 --size image_size=64
resnet18 --size image_size=64
squeezenet1_1 --size image_size=64
shufflenet_v2_x0_5 --size image_size=64
efficientnet_b0 --size image_size=64
densenet121 --size image_size=64
swin_t --size image_size=32
vit_b_16 --size image_size=32
gpt --size d_model=64,layers=2,heads=2,seq=32,vocab=300
wordlm --size hidden=48,vocab=300,seq=6
""".strip().splitlines()

DERIVED = """
alexnet --symbols batch,classes --at batch=4,classes=10 --sweep batch=8:8:1 --solve "kept <= 1 GiB for batch"
resnet18 --symbols batch,image --at batch=2,image=64 --sweep batch=4:4:1 --solve "footprint <= 4 GiB for batch"
gpt --symbols batch,seq,layers --at batch=2,seq=128,layers=3 --sweep seq=256:256:1 --solve "kept <= 8 GiB for seq"
wordlm --at batch=4,hidden=64,seq=5,vocab=100 --sweep hidden=128:128:1 --solve "parameters <= 1e9 for hidden"
bert --symbols batch,layers --at batch=2,layers=3 --sweep layers=24:24:1
autoenc --at batch=16,latent=20 --sweep latent=50:50:1
wordlm --rules catamount --at hidden=2004,vocab=10004,seq=80,batch=64 --sweep batch=128:128:1
charlm --rules catamount --at hidden=2004,vocab=98,seq=150,batch=64 --sweep batch=128:128:1
""".strip().splitlines()

SUMS = (
    "parameters", "model_flop", "causal_flop", "mask_exact_flop", "all_flop", "bytes_accessed",
    "total_footprint_bytes", "kept_bytes", "io_bytes",
)  # fmt: skip
"""Quantities that are sums over operations, so that their formula can be written in one way only."""

TRACED = """
resnet50 --batch-size 8
vgg16 --batch-size 4
mobilenet_v2 --batch-size 8 --optimizer adam
vit_b_16 --batch-size 2 --precision amp-bf16 --optimizer adamw
gpt --batch-size 2 --size seq=128,layers=4 --optimizer adam
charlm --batch-size 4 --size hidden=256,seq=10
resnet18 --batch-size 4 --accumulate 2
squeezenet1_1 --batch-size 8 --device cpu --optimizer adam
""".strip().splitlines()

UNTIMED = "--device cpu --steps 1 --warm-up 0 --compare-steps 0 --ceiling-budget 0"

PROFILED = """
resnet18 --batch-size 2 --size image_size=64
mobilenet_v2 --batch-size 2 --size image_size=64 --mode forward
gpt --size d_model=64,layers=2,heads=2,seq=32,vocab=300 --optimizer adam
""".strip().splitlines()


def answer(command: str, case: str, *options: str) -> Any:
    """The JSON that a command prints for a case, run in this process. Raises RuntimeError with what it said."""
    words = [*shlex.split(case), *options, "--format", "json"]
    code, out, err = printed(command, *words)
    if code:
        raise RuntimeError(f"{' '.join([command, *words])}: exit code {code}: {err}")
    return json.loads(out)


def counts(wanted: Wanted) -> Iterator[Row]:
    """Exact FLOP of forward and backward pass, and by the other conventions of attention."""
    for case in filter(wanted, COUNTED):
        found = answer("count", case, "--counters", "exact")
        row: Row = {"case": case, "parameters": found["parameters"]}
        row |= {name: found["exact"][name] for name in ("forward_flop", "backward_flop")}
        for convention in ("causal", "mask_exact"):
            passes = found["attention"][convention]
            row[f"{convention}_flop"] = None if passes is None else passes["forward_flop"] + passes["backward_flop"]
        yield row


def steps(wanted: Wanted) -> Iterator[Row]:
    """Whole steps by `flopledger.count`: two images of 64 pixels, Adam; FLOP that are no products, too."""
    import torch
    import torchvision

    import flopledger

    names = "forward_flop", "backward_flop", "optimizer_flop", "other_flop"
    for case in filter(wanted, STEPPED):
        model = torchvision.models.get_model(case)
        found = flopledger.count(model, torch.randn(2, 3, 64, 64), optimizer=torch.optim.Adam(model.parameters()))
        yield {"case": case} | {name: getattr(found, name) for name in names}


def attributions(wanted: Wanted) -> Iterator[Row]:
    """Of every counter and pass its own number, that in FLOP, and by cause what it differs by from the exact one.

    unexplained: FLOP of both passes that no cause explains.
    """
    for case in filter(wanted, ATTRIBUTED):
        for counter in answer("count", case, "--counters", "all", "--detail")["counters"]:
            for phase in ("forward", "backward"):
                causes: defaultdict[str, Fraction] = defaultdict(Fraction)
                for each in counter["causes"]:
                    if each["phase"] == phase:
                        causes[each["cause"]] += Fraction(each["flop"])
                row: Row = {"case": case, "counter": counter["counter"], "phase": phase}
                whole: Row = {"flop": counter[f"{phase}_flop"], "native": counter[f"{phase}_native"]}
                yield {**row, "cause": "", **whole, "unexplained": counter["unexplained_flop"]}
                yield from ({**row, "cause": cause, "flop": _number(flop)} for cause, flop in sorted(causes.items()))


def _number(value: Fraction) -> int | float:
    return int(value) if value.denominator == 1 else float(value)


def formulas(wanted: Wanted) -> Iterator[Row]:
    """Of every quantity its values at two points, of sums the closed formula multiplied out; and what was solved for:
    the largest size, and the quantity there.

    The minimal footprint is only compared by Catamount's rules: by ours it becomes an interval.
    """
    for case in filter(wanted, DERIVED):
        found = answer("formula", case)
        (second,) = found["sweep"]
        for quantity, value in found["values"].items():
            is_other = quantity in ("causal_flop", "mask_exact_flop") and found[quantity] == found["model_flop"]
            if value is None or is_other or (quantity.startswith("minimal") and found["rules"] != "catamount"):
                continue
            formula = expanded(found[quantity]) if quantity in SUMS else ""
            yield {"case": case, "quantity": quantity, "value": value, "second": second[quantity], "formula": formula}
        for each in found["solutions"]:
            yield {"case": case, "quantity": each["asked"], "value": each["value"], "second": each["left"]}


def expanded(formula: str) -> str:
    """The formula as a sum of products, so that two ways to write the same are one text."""
    import sympy

    words = re.findall(r"\b[a-z_]\w*\b(?!\()", formula)
    names = {name: sympy.Symbol(name, positive=True, integer=True) for name in words}
    return str(sympy.expand(sympy.parse_expr(formula, local_dict=names)))


def footprints(wanted: Wanted) -> Iterator[Row]:
    """The eager peak and what fills it, the allocator's bytes, and the least that any order of operations needs."""
    names = "eager_peak_bytes", "lower_bound_bytes", "allocated_bytes", "reserved_bytes", "segments"
    for case in filter(wanted, TRACED):
        found = answer("footprint", case)
        row: Row = {"case": case} | {name: found[name] for name in names}
        row |= {name: found["peak_at"][name] for name in ("operation", "module", "phase")}
        yield row | found["by_category"]


def trees(wanted: Wanted) -> Iterator[Row]:
    """FLOP and parameters of every module with all below it."""
    names = "module", "type", "parameters", "forward_flop", "backward_flop", "other_flop"
    for case in filter(wanted, PROFILED):
        for module in answer("profile", f"{case} {UNTIMED}")["modules"]:
            yield {"case": case} | {name: module[name] for name in names}


def metered(wanted: Wanted) -> Iterator[Row]:
    """What the meter counts of a step of each loop: the mean of four, after one that warms up."""
    import torch

    import flopledger
    from tests.golden import loops

    for loop in loops.LOOPS:
        if not wanted(loop.__name__):
            continue
        torch.manual_seed(0)
        model, step = loop()
        meter = flopledger.UtilizationMeter(model, warm_up_steps=1, energy=False, peak_flop_per_s=1e12)
        for _ in range(5):
            with meter.step():
                step()
        found = meter.summary()
        row: Row = {"case": loop.__name__, "model_flop": found.model_flop_per_step}
        yield row | {"recompute_flop": found.recompute_flop_per_step, "steps": found.steps}


ANSWERS: dict[str, Answer] = {
    "models_counts": counts,
    "models_steps": steps,
    "models_attributions": attributions,
    "models_formulas": formulas,
    "models_footprints": footprints,
    "models_trees": trees,
    "models_meter": metered,
}

PLAIN: dict[str, Collection[str]] = {
    "models_counts": [
        "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0", "swin_t", "vit_b_16", "r3d_18", "raft_small", "gpt",
        "bert", "residual", "seq2seq@small", "deepq@small", "fathom-speech@as_paper@small", *TEXT[3:6],
    ],
    "models_steps": ["resnet18", "squeezenet1_1"],
    "models_attributions": ATTRIBUTED[-1:],
    "models_formulas": [DERIVED[0], DERIVED[3], DERIVED[5], DERIVED[6]],
    "models_footprints": [TRACED[1], TRACED[6], TRACED[7]],
    "models_trees": PROFILED[-1:],
}  # fmt: skip
