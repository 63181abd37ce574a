"""What torch alone says of a GPU, without a line of this project: a product, a copy, launches, steps of ResNet-50.

    python benchmarks/gpu/probe.py

Prints JSON, SI units. Each time is the median of device events around a call or a step. It is independent evidence for
what a run of this project says of the same device: the step of `resnet50 batch 256 amp-bf16 channels_last`.
"""

import json
import statistics
from collections.abc import Callable

import torch
import torchvision

SIDE, COPIED_BYTES, LAUNCHES = 8192, 1 << 30, 1000
BATCH, IMAGE_SIZE, CLASSES = 256, 224, 10
WARM, TIMED = 5, 20


def median_s(call: Callable[[], object], times: int = TIMED) -> float:
    """Device time of one call."""
    for _ in range(WARM):
        call()
    pairs = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(times)]
    for first, last in pairs:
        first.record()
        call()
        last.record()
    torch.cuda.synchronize()
    return statistics.median(first.elapsed_time(last) for first, last in pairs) / 1e3


def step_of_resnet50() -> Callable[[], None]:
    """A training step in bfloat16, SGD with momentum, on random images."""
    model = torchvision.models.resnet50(num_classes=CLASSES).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(BATCH, 3, IMAGE_SIZE, IMAGE_SIZE, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(CLASSES, (BATCH,), device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def main() -> None:
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target, one = torch.empty_like(source), torch.zeros(1, device="cuda")
    torch.backends.cudnn.benchmark = True
    product_s, copy_s = median_s(lambda: a @ b), median_s(lambda: target.copy_(source))
    launches_s = median_s(lambda: [one.add_(1) for _ in range(LAUNCHES)], 3)
    step_s = median_s(step_of_resnet50())
    answer = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "bf16_product_flop_per_s": 2 * SIDE**3 / product_s,
        "copy_bytes_per_s": 2 * COPIED_BYTES / copy_s,
        "launch_s": launches_s / LAUNCHES,
        "resnet50_step_s": step_s,
        "resnet50_images_per_s": BATCH / step_s,
        "peak_memory_bytes": torch.cuda.max_memory_allocated(),
    }
    print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
