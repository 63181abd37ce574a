"""Definition, law, injected fault: timm's models as workloads, and the exact count of a dozen of them; refusals."""

import pytest
import torch

from measure.counters.adapters.dispatched import flopledger
from workloads.any_model import get

CPU = torch.device("cpu")

QUICK = ("convnext_atto", "swin_tiny_patch4_window7_224", "mixer_s32_224", "regnety_002", "levit_128s")
SLOW = (
    "deit_tiny_patch16_224",
    "efficientnetv2_rw_t",
    "nf_regnet_b0",
    "coatnet_pico_rw_224",
    "maxvit_rmlp_pico_rw_256",
    "cait_xxs24_224",
    "xcit_nano_12_p16_224",
    "mobilevit_xxs",
    "edgenext_xx_small",
    "poolformer_s12",
    "volo_d1_224",
    "beit_base_patch16_224",
    "eva02_tiny_patch14_224",
    "hiera_tiny_224",
    "sequencer2d_s",
)


def batch_of(workload, size=2):
    return workload.batch(workload.hyper, size, CPU, torch.Generator().manual_seed(0))


def totals(model, inputs):
    rows = flopledger(model, inputs, workload="timm", batch_size=len(inputs[0]))
    return {row.phase: row for row in rows if (row.scope, row.operator) == ("total", "")}


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])
def test_architectures_are_counted_whole(name):
    """Backward is twice forward but for the first layer, whose input needs no gradient."""
    workload = get(f"timm:{name}")
    found = totals(workload.build(**workload.hyper), batch_of(workload, 1).inputs)
    assert {phase: row.not_understood for phase, row in found.items()} == {"forward": {}, "backward": {}}
    assert not found["forward"].reason, "on fake tensors"
    assert 1.8 < found["backward"].flop / found["forward"].flop < 2


def test_a_small_vit_by_hand():
    """deit_tiny at 32 × 32 and 10 classes, a batch of 3: 4 patches of 3·16·16 to 192, 5 tokens with the class; 12
    layers of 4·192² + 2·192·768 MAC a token and 2·5·192 of attention; a head of 192·10. Backward is twice that, but
    once for the patches: images need no gradient."""
    workload = get("timm:deit_tiny_patch16_224", image_size=32, num_classes=10)
    model, inputs = workload.build(**workload.hyper), batch_of(workload, 3).inputs
    assert inputs[0].shape == (3, 3, 32, 32)
    patches = 4 * 768 * 192
    rest = 12 * 5 * (4 * 192**2 + 2 * 192 * 768 + 2 * 5 * 192) + 192 * 10
    found = {phase: row.flop for phase, row in totals(model, inputs).items()}
    assert found == {"forward": 2 * 3 * (patches + rest), "backward": 2 * 3 * (patches + 2 * rest)}


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("vit_smal_patch16_224", {}, "timm has no 'vit_smal_patch16_224'; nearest: vit_small_patch16_224"),
        ("vit_small_patch16_224.augreg_in2k", {}, "no tag 'augreg_in2k'; nearest: vit_small_patch16_224.augreg_in"),
        ("resnet18", {"frames": 3}, "timm:resnet18 has no frames; it has image_size, num_classes"),
        ("resnet18", {"image_size": 0}, "image_size of timm:resnet18: expected 1 or more, got 0"),
        ("resnet18", {"input": "32x32"}, "takes one image, such as --input 3x224x224"),
        ("resnet18", {"input": "3x8x8:int64:9"}, "takes one image"),
        ("resnet18", {"input": "3x8x8,3x8x8"}, "takes one image"),
    ],
)
def test_mistakes_are_one_line(name, options, said):
    with pytest.raises(ValueError, match="timm") as fault:
        get(f"timm:{name}", **options)
    assert said in str(fault.value)
    assert "\n" not in str(fault.value)


def test_the_input_is_the_models_own_the_tags_or_the_askers():
    assert get("timm:convnext_atto").hyper == {"image_size": 224, "num_classes": 1000}
    tagged = get("timm:vit_base_patch16_224.orig_in21k")
    assert tagged.hyper == {"image_size": 224}, "published without a classifier"
    wide = get("timm:deit_tiny_patch16_224", input="3x32x64", num_classes=4)
    assert wide.hyper == {"num_classes": 4}
    assert wide.build(**wide.hyper)(*batch_of(wide).inputs).shape == (2, 4)
