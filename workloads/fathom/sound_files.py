"""TIMIT for `fathom-speech`: sound of NIST SPHERE as coefficients, and the phonemes of its transcription.

26 coefficients of each 10 ms, every 5 ms: the logarithm of the energy, twelve of the cepstrum on the mel scale, and how
all thirteen change. Utterances that are longer than the workload's frames or labels are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import torch
from torch.nn import functional

from workloads.catalogue.base import Batch, Workload
from workloads.catalogue.entries import AS_PAPER
from workloads.fathom.data_sets import sliced

PHONEMES = (
    "aa", "ae", "ah", "ao", "aw", "ax", "ax-h", "axr", "ay", "b", "bcl", "ch", "d", "dcl", "dh", "dx", "eh", "el",
    "em", "en", "eng", "epi", "er", "ey", "f", "g", "gcl", "h#", "hh", "hv", "ih", "ix", "iy", "jh", "k", "kcl", "l",
    "m", "n", "ng", "nx", "ow", "oy", "p", "pau", "pcl", "q", "r", "s", "sh", "t", "tcl", "th", "uh", "uw", "ux", "v",
    "w", "y", "z", "zh",
)  # fmt: skip
"""The 61 of TIMIT, by their numbers."""

WINDOW_S, HOP_S = 0.010, 0.005
MELS, CEPSTRUM = 26, 12
COEFFICIENTS = 2 * (CEPSTRUM + 1)
FLOOR = 1e-10


def timit(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """All utterances below a directory, by their paths, in order."""
    hyper, sounds, labels, frames, lengths = workload.hyper, [], [], [], []
    if hyper["coefficients"] != COEFFICIENTS or hyper["phonemes"] != len(PHONEMES) + 1:
        raise ValueError(f"{directory}: TIMIT has {COEFFICIENTS} coefficients and {len(PHONEMES) + 1} phonemes here")
    paths = sorted(path for path in directory.rglob("*") if path.suffix.lower() == ".wav")
    if not paths:
        raise ValueError(f"{directory}: expected .WAV files of TIMIT, with .PHN beside them; got none")
    for path in paths:
        spoken, heard = _phonemes(path), coefficients(*sphere(path))
        if len(spoken) > hyper["labels"] or len(heard) > hyper["frames"]:
            continue
        sounds.append(functional.pad(heard, (0, 0, 0, hyper["frames"] - len(heard))))
        labels.append(spoken + [0] * (hyper["labels"] - len(spoken)))
        lengths.append(len(spoken))
        frames.append(len(heard) if AS_PAPER in workload.name else len(spoken))
    if not sounds:
        raise ValueError(f"{directory}: expected utterances of {hyper['frames']} frames at most; all are longer")
    target = (torch.tensor(labels), torch.tensor(frames), torch.tensor(lengths))
    return sliced((torch.stack(sounds),), target, size)


def sphere(path: Path) -> tuple[torch.Tensor, int]:
    """Samples from -1 to 1 and how many a second of a SPHERE file of 16-bit numbers. Raises ValueError."""
    held = path.read_bytes()
    if not held.startswith(b"NIST_1A\n"):
        raise ValueError(f"{path}: expected NIST SPHERE, which begins with NIST_1A; got {held[:8]!r}")
    try:
        start = int(held[8:16])
        words = [line.split() for line in held[:start].decode("ascii").splitlines()[2:]]
        fields = {word[0]: word[2] for word in words if len(word) >= 3}
        count, rate = int(fields["sample_count"]), int(fields["sample_rate"])
    except (ValueError, KeyError, UnicodeDecodeError) as fault:
        raise ValueError(f"{path}: its header is damaged: {type(fault).__name__}: {fault}") from fault
    if fields.get("sample_n_bytes") != "2" or fields.get("sample_coding", "pcm") != "pcm":
        raise ValueError(f"{path}: expected samples of 16 bits as they are (pcm), got another coding")
    data = held[start : start + 2 * count]
    if len(data) < 2 * count:
        raise ValueError(f"{path}: expected {count} samples, the file is cut off after {len(data) // 2}")
    dtype = ">i2" if fields.get("sample_byte_format") == "10" else "<i2"
    import numpy as np

    return torch.from_numpy(np.frombuffer(data, dtype=dtype).astype("float32") / 2**15), rate


def coefficients(samples: torch.Tensor, rate: int) -> torch.Tensor:
    """frames × 26 of a sound: see the module."""
    window, hop = round(WINDOW_S * rate), round(HOP_S * rate)
    if len(samples) < window:
        raise ValueError(f"expected a sound of {window} samples or more, got {len(samples)}")
    pieces = samples.unfold(0, window, hop)
    size = 2 ** math.ceil(math.log2(window))
    power = torch.fft.rfft(pieces * torch.hamming_window(window), n=size).abs().square() / size
    mels = (power @ _filters(size, rate).t()).clamp(min=FLOOR).log()
    energy = pieces.square().sum(dim=1, keepdim=True).clamp(min=FLOOR).log()
    order = torch.arange(1, CEPSTRUM + 1).unsqueeze(1)
    static = torch.cat(
        [energy, mels @ (torch.cos(math.pi / MELS * order * (torch.arange(MELS) + 0.5)) * math.sqrt(2 / MELS)).t()],
        dim=1,
    )
    around = functional.pad(static.t().unsqueeze(0), (1, 1), mode="replicate")[0].t()
    return torch.cat([static, (around[2:] - around[:-2]) / 2], dim=1)


def _filters(size: int, rate: int) -> torch.Tensor:
    """Triangles that overlap by half, equally wide on the mel scale: MELS × frequencies."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, MELS + 2) / 2595) - 1)
    at = torch.linspace(0, rate / 2, size // 2 + 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return torch.minimum((at - low) / (middle - low), (high - at) / (high - middle)).clamp(min=0)


def _phonemes(path: Path) -> list[int]:
    """The numbers of a transcription, which stands beside the sound: lines of begin, end and phoneme."""
    beside = next((path.with_suffix(end) for end in (".PHN", ".phn") if path.with_suffix(end).is_file()), None)
    if beside is None:
        raise ValueError(f"{path}: expected its transcription {path.with_suffix('.PHN').name} beside it, there is none")
    found = []
    for number, line in enumerate(beside.read_text(encoding="ascii", errors="replace").splitlines(), start=1):
        *span, phoneme = line.split() or [""]
        if len(span) != 2 or phoneme not in PHONEMES:
            raise ValueError(f"{beside}, line {number}: expected begin, end and a phoneme of TIMIT, got {line[:60]!r}")
        found.append(PHONEMES.index(phoneme))
    if not found:
        raise ValueError(f"{beside}: expected phonemes, the file is empty")
    return found
