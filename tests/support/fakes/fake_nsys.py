"""A stand-in for Nsight Systems' command, for tests: runs what it is given, then leaves an export that a test knows.

    python fake_nsys.py profile --output=REPORT … python -m runners.sweep.nsight CELL WORK

The export is of one step of synthetic_convolution: its convolution forward, on two kernels of a name that PyProf
knows, so that its rule counts it twice, and the gradient of its weight backward, on the engine's thread. FAKE_NSYS says
what else to do, as MODES have it: "WORK:MODE", several with commas between. FAKE_NSYS_SAW names a file
that gets a line a call, of JSON: arguments, folder for temporary files, exit code of what was run.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from tests.support.made_up_operations.nsys_export import ENGINE, MAIN, Export

SIDE, CHANNELS, CLASSES = 64, 64, 64
KERNEL = "maxwell_scudnn_128x64_relu_medium_nn_v1"
VERSION = "NVIDIA Nsight Systems version 2026.2.1.210-made-up"


IN_THE_STEP = ((1300, MAIN), (2000, MAIN), (4300, ENGINE))
BEFORE_IT = ((100, MAIN), (200, MAIN), (300, MAIN))
"""When and where kernels are launched."""


def export(images: int, launches: tuple[tuple[int, int], ...] = IN_THE_STEP, ranges: bool = True) -> Export:
    """One step. Times in ns from 1000 on."""
    made = Export(2026)
    image, weight = f"[{images}, {CHANNELS}, {SIDE}, {SIDE}]", f"[{CHANNELS}, {CHANNELS}, 3, 3]"
    forward = f"sizes = [{image}, {weight}, [], [], [], [], []]"
    if ranges:
        made.domain(3, "flopledger")
        spans = {"step": (1000, 9000), "forward": (1100, 3000), "loss": (3000, 4000), "backward": (4000, 8000)}
        for name, (start, end) in {**spans, "optimizer": (8000, 8900)}.items():
            made.in_domain(3, name, start, end)
    made.push("flopledger.module.0", 1150, 2950)
    made.push(f"aten::conv2d, op_id = 1, {forward}", 1200, 2900)
    made.push(f"aten::convolution, seq = 5, op_id = 2, {forward}", 1210, 2890)
    made.push(f"aten::cudnn_convolution, op_id = 3, sizes = [{image}, {weight}, [], [], [], [], [], []]", 1220, 2880)
    made.push("autograd::engine::evaluate_function: ConvolutionBackward0, op_id = 4", 4100, 7000, ENGINE)
    made.push(f"ConvolutionBackward0, seq = 5, op_id = 5, sizes = [{image}]", 4110, 6990, ENGINE)
    gradient = f"sizes = [{image}, {image}, {weight}, [], [], [], [], [], [], [], []]"
    made.push(f"aten::convolution_backward, op_id = 6, {gradient}", 4120, 6980, ENGINE)
    for number, (start, thread) in enumerate(launches, 1):
        made.launch(number, start, start + 50, thread)
        made.kernel(KERNEL, number, start + 400, start + 900)
    return made


def main(arguments: list[str]) -> int:
    """What nsys would do, as far as a sweep looks at it."""
    if arguments == ["--version"]:
        print(VERSION)
        return 0
    at = next(i for i, word in enumerate(arguments) if word == sys.executable)
    output = next(word.partition("=")[2] for word in arguments[:at] if word.startswith("--output="))
    target = arguments[at:]
    work, cell = target[-1], json.loads(target[-2])
    mode = dict(told.split(":") for told in os.environ.get("FAKE_NSYS", "").split(",") if told).get(work, "")
    if mode in BEFORE:
        return BEFORE[mode](Path(output))
    code = subprocess.run(target, check=False).returncode
    if saw := os.environ.get("FAKE_NSYS_SAW"):
        with open(saw, "a") as file:
            told_of = {"arguments": arguments, "folder": os.environ.get("TMPDIR"), "code": code}
            file.write(json.dumps(told_of) + "\n")
    if code:
        return code
    size = cell["batch_size"]
    images = {"one": 1, "batch": size, "last": cell.get("epoch_images", 0) % size}[work]
    path = Path(f"{output}.sqlite")
    if mode != "nothing":
        launches = {"no_kernels": (), "early": BEFORE_IT}.get(mode, IN_THE_STEP)
        export(images, launches, mode != "no_ranges").write(path)
    if mode == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    print("[1/2] [========================100%] report.nsys-rep\nGenerated:\n", output)
    return 0


def _fail(_output: Path) -> int:
    print(
        "[1/1] [====       35%] report.nsys-rep",
        "\nThe target application cannot be profiled: made up",
        file=sys.stderr,
    )
    return 7


def _hang(output: Path) -> int:
    """Stays, with a child in a session of its own that would stay, too, and a large temporary file."""
    words = [sys.executable, "-c", "import time; time.sleep(600)", "a stray of", str(output)]
    subprocess.Popen(words, start_new_session=True)
    Path(os.environ["TMPDIR"], "collected.qdstrm").write_bytes(b"0" * 1000)
    print("Collecting data...", flush=True)
    time.sleep(600)
    return 0


BEFORE = {"fail": _fail, "hang": _hang}
MODES = (*BEFORE, "nothing", "no_kernels", "early", "no_ranges", "cut")
"""fail, hang: nothing is run. nothing: no export. early: kernels before the step alone. cut: only its beginning."""

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
