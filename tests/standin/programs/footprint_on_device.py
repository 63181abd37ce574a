"""Run as a program on a stand-in device: predicted footprints beside what the CUDA allocator recorded.

Arguments: pairs of model and batch size. Prints {"model": {"predicted_bytes", "tensors_bytes"}} as JSON.
"""

import json
import sys

from runners.workers.traced_step import StepOptions, check

if __name__ == "__main__":
    words = sys.argv[1:]
    found = {
        model: check(StepOptions(model, "fp32", "sgd", "cuda"), int(batch), "cuda")
        for model, batch in zip(words[::2], words[1::2], strict=True)
    }
    names = ("predicted_bytes", "tensors_bytes")
    print(json.dumps({model: dict(zip(names, each, strict=True)) for model, each in found.items()}))
