"""Known answer: the FLOP that cuDNN and cuBLAS are asked for are this program's exact count, forward and backward.

An independent route: ours counts PyTorch's operators on fake tensors; the stand-in reads the sizes in the libraries'
own descriptors while the CUDA build of torch trains.
"""

import json
import sys
from pathlib import Path

import pytest

from tests.standin.device.stand_in import ROOT

pytestmark = pytest.mark.standin

HERE = Path(__file__).parent
POST = ["alexnet", "vgg11", "vgg13", "vgg16", "vgg19", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]
POST += ["wide_resnet50_2", "mobilenet_v2", "efficientnet_b0"]
BATCH, PIXELS = 2, 64


@pytest.fixture(scope="module")
def both(standin_of_module):
    """{model: (forward, backward)} of the device, and of the exact count."""
    device = standin_of_module()
    sizes = (str(BATCH), str(PIXELS))
    given = device.run(sys.executable, str(HERE / "programs" / "steps_on_device.py"), *sizes, *POST)
    assert given.returncode == 0, given.stderr
    words = ("--counters", "exact", "--batch-size", sizes[0], "--size", f"image_size={sizes[1]}", "--format", "json")
    counted = device.run(sys.executable, "-m", "runners.count", *POST, *words, cwd=ROOT)
    assert counted.returncode == 0, counted.stderr
    exact = {each["model"]: each["exact"] for each in json.loads(counted.stdout)}
    return {name: (forward, backward) for name, (forward, backward, _) in json.loads(given.stdout).items()}, exact


@pytest.mark.parametrize("model", POST)
def test_descriptors_hold_what_is_counted(both, model):
    given, exact = both
    assert given[model] == (exact[model]["forward_flop"], exact[model]["backward_flop"])
