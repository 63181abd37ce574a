"""How long `runners.count --parallel` takes, and how much memory: 1,024 ranks of a Llama of 70 B parameters.

    python -m benchmarks.parallel.ranks [--layers 80] [--axes dp=16,tp=8,pp=8] [--replicas ddp]

Prints a line for each number. The command runs in a process of its own, from its start to its JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256, "tie_word_embeddings": False,
}  # fmt: skip
"""Sizes of Llama 3 70B (Grattafiori et al., arXiv 2407.21783, table 3) but for its layers."""


def count(layers: int, axes: str, replicas: str, batch: int) -> tuple[dict[str, Any], float, float, int]:
    """(the answer, seconds, seconds of CPU, peak bytes) of one run."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "llama.json"
        config.write_text(json.dumps(LLAMA | {"num_hidden_layers": layers}))
        sizes = ["--size", "seq=4096", "--batch-size", str(batch)]
        command = [sys.executable, "-m", "runners.count", f"hf:{config}", *sizes]
        command += ["--parallel", axes, "--replicas", replicas, "--format", "json"]
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(1)
    return json.loads(said), time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


def main() -> None:
    """Run once and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=80)
    parser.add_argument("--axes", default="dp=16,tp=8,pp=8")
    parser.add_argument("--replicas", default="ddp")
    parser.add_argument("--batch", type=int, default=512)
    given = parser.parse_args()
    found, wall_s, cpu_s, peak_bytes = count(given.layers, given.axes, given.replicas, given.batch)
    print(f"ranks {found['world']}, parameters {sum(rank['parameters'] for rank in found['ranks']) / 1e9:.1f} G in all")
    print(f"time {wall_s:.1f} s, of CPU {cpu_s:.1f} s, peak memory {peak_bytes / 1e9:.2f} GB")
    print(f"sum over ranks {found['sum_model_flop']:,} FLOP, not explained {found['unexplained_flop']}")


if __name__ == "__main__":
    main()
