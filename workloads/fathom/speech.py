"""Builds Fathom's `fathom-speech`, which recognises phonemes in sound and is trained by CTC, and reads TIMIT for it.

Fathom is a suite of eight deep-learning workloads. `CodedSpeech` is the network of its code, `DeepSpeech` that of its
paper. Both take sound as frames of coefficients, and return log probabilities of phonemes. `speech_batch` draws random
sound. `timit` takes a directory, and yields batches of its sound in NIST SPHERE files, with the phonemes of the
transcriptions. Weights begin random; those of Fathom's code begin at zero, from where nothing trains.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional

from workloads.catalogue.base import Batch, Workload, draw
from workloads.catalogue.entries import AS_PAPER
from workloads.fathom.data_sets import sliced


class Tiled(nn.Module):
    """A layer whose weight is repeated for each sample and whose bias for each frame: batch × frames × inputs →
    batch × frames × outputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.normal_(self.weight, std=(2 / inputs) ** 0.5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        size, frames, _ = inputs.shape
        return torch.bmm(inputs, self.weight.repeat(size, 1, 1)) + self.bias.repeat(size, frames, 1)


class CodedSpeech(nn.Module):
    """As coded: sound, batch × frames × coefficients → log probabilities, frames × batch × phonemes.

    There are three layers of width h and an output layer, each followed by a ReLU clipped at 20, also the last. With c
    coefficients and p phonemes they have 2h² + (c + p + 3)h + p parameters. Fathom's code also builds a bidirectional
    recurrent layer, but nothing reads its output, so that it was never run. This "recurrent" workload of the paper's
    measurements is four matrix products. Weights are repeated for each sample and biases for each frame before they are
    used, which is the paper's share of Tile. CTC sees as many frames as there are labels.
    """

    def __init__(self, hidden: int, coefficients: int, phonemes: int, **_sizes: int) -> None:
        super().__init__()
        sizes = (coefficients, hidden, hidden, hidden, phonemes)
        self.layers = nn.ModuleList(Tiled(*pair) for pair in pairwise(sizes))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            sound = _clipped(layer(sound))
        return sound.log_softmax(dim=2).transpose(0, 1)


class DeepSpeech(nn.Module):
    """As in the paper: sound, batch × frames × coefficients → log probabilities, frames × batch × phonemes.

    The paper is Deep Speech (Hannun et al. 2014, arXiv:1412.5567). The recurrent layer is used, between the third layer
    and one more, with 6h² + (c + p + 5)h + p parameters in all. Both directions read the same product. CTC sees all
    frames.
    """

    def __init__(self, hidden: int, coefficients: int, phonemes: int, **_sizes: int) -> None:
        super().__init__()
        sizes = (coefficients, hidden, hidden, hidden)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))
        self.entered = nn.Linear(hidden, hidden)
        self.onward, self.backward_ = (nn.Linear(hidden, hidden, bias=False) for _ in range(2))
        self.fifth = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, phonemes)
        self.apply(_unfading)

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            sound = _clipped(layer(sound))
        entered = self.entered(sound)
        hidden = _recurrent(entered, self.onward) + _recurrent(entered.flip(1), self.backward_).flip(1)
        logits: torch.Tensor = self.output(_clipped(self.fifth(hidden)))
        return logits.log_softmax(dim=2).transpose(0, 1)


def _clipped(values: torch.Tensor) -> torch.Tensor:
    return values.clamp(0.0, 20.0)


def _recurrent(entered: torch.Tensor, again: nn.Linear) -> torch.Tensor:
    """Return the states of a layer that reads its last state again: batch × frames × hidden."""
    state, states = torch.zeros_like(entered[:, 0]), []
    for frame in entered.unbind(1):
        state = _clipped(frame + again(state))
        states.append(state)
    return torch.stack(states, dim=1)


def _unfading(module: nn.Module) -> None:
    """Set weights of variance 1 ÷ inputs, through which values neither grow nor fade; for `Module.apply`."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5)


def loss(log_prob: torch.Tensor, target: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return mean CTC loss; the last phoneme is the blank. target: labels, batch × labels, and the numbers of frames
    and of labels of each sample."""
    labels, frames, lengths = target
    return functional.ctc_loss(log_prob, labels, frames, lengths, blank=log_prob.shape[2] - 1, zero_infinity=True)


def speech_batch(
    hyper: Mapping[str, int], size: int, device: torch.device, generator: torch.Generator | None, seen_of: str
) -> Batch:
    """Draw input: size × frames × coefficients of sound. seen_of: name of the size that is the number of frames, from
    the first, that CTC sees.

    These frames are divided equally among the phonemes of a sample. Each phoneme is a tone in normal noise. No phoneme
    follows itself, so that no blank is needed between."""
    seen, count, blank = hyper[seen_of], hyper["labels"], hyper["phonemes"] - 1
    steps = 1 + draw((size, count), blank - 1, device, generator)
    labels = steps.cumsum(dim=1) % blank
    when = (torch.arange(hyper["frames"], device=device) * count // seen).clamp(max=count - 1)
    tone = torch.arange(hyper["coefficients"], device=device)
    sound = torch.randn(size, hyper["frames"], hyper["coefficients"], device=device, generator=generator)
    sound = sound + 2 * torch.cos((labels[:, when].unsqueeze(2) + 1.0) * (tone + 0.5) * (torch.pi / blank))
    lengths = torch.full((size,), count, device=device)
    return Batch((sound,), (labels, torch.full((size,), seen, device=device), lengths))


def frames_of(hyper: Mapping[str, int], size: int) -> int:
    """Return the number of frames of sound in a batch."""
    return size * hyper["frames"]


PHONEMES = (
    "aa", "ae", "ah", "ao", "aw", "ax", "ax-h", "axr", "ay", "b", "bcl", "ch", "d", "dcl", "dh", "dx", "eh", "el",
    "em", "en", "eng", "epi", "er", "ey", "f", "g", "gcl", "h#", "hh", "hv", "ih", "ix", "iy", "jh", "k", "kcl", "l",
    "m", "n", "ng", "nx", "ow", "oy", "p", "pau", "pcl", "q", "r", "s", "sh", "t", "tcl", "th", "uh", "uw", "ux", "v",
    "w", "y", "z", "zh",
)  # fmt: skip
"""TIMIT's 61 phonemes, in the order of their numbers."""

WINDOW_S, HOP_S = 0.010, 0.005
MELS, CEPSTRUM = 26, 12
COEFFICIENTS = 2 * (CEPSTRUM + 1)
FLOOR = 1e-10


def timit(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Return batches of all utterances below a directory, in the order of their paths, without those that have more
    frames or labels than the workload. Raises ValueError for other sizes than TIMIT's, and without utterances."""
    hyper, sounds, labels, frames, lengths = workload.hyper, [], [], [], []
    if hyper["coefficients"] != COEFFICIENTS or hyper["phonemes"] != len(PHONEMES) + 1:
        raise ValueError(
            f"{workload.name}: expected coefficients={COEFFICIENTS} and phonemes={len(PHONEMES) + 1} for TIMIT, got "
            f"{hyper['coefficients']} and {hyper['phonemes']}"
        )
    paths = sorted(path for path in directory.rglob("*") if path.suffix.lower() == ".wav")
    if not paths:
        raise ValueError(f"{directory}: expected .WAV files of TIMIT, with .PHN beside them; got none")
    for path in paths:
        phonemes, sound = _phonemes(path), coefficients(*sphere(path))
        if len(phonemes) > hyper["labels"] or len(sound) > hyper["frames"]:
            continue
        sounds.append(functional.pad(sound, (0, 0, 0, hyper["frames"] - len(sound))))
        labels.append(phonemes + [0] * (hyper["labels"] - len(phonemes)))
        lengths.append(len(phonemes))
        frames.append(len(sound) if AS_PAPER in workload.name else len(phonemes))
    if not sounds:
        raise ValueError(f"{directory}: expected utterances of {hyper['frames']} frames at most; all are longer")
    target = (torch.tensor(labels), torch.tensor(frames), torch.tensor(lengths))
    return sliced((torch.stack(sounds),), target, size)


def sphere(path: Path) -> tuple[torch.Tensor, int]:
    """Return (samples from -1 to 1, samples per second) of a SPHERE file of 16-bit numbers. Raises ValueError for a
    file of another format, or one that is damaged."""
    held = path.read_bytes()
    if not held.startswith(b"NIST_1A\n"):
        raise ValueError(f"{path}: expected NIST SPHERE, which begins with NIST_1A; got {held[:8]!r}")
    try:
        start = int(held[8:16])
        header = [line.split() for line in held[:start].decode("ascii").splitlines()[2:]]
        fields = {word[0]: word[2] for word in header if len(word) >= 3}
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
    """Return frames × 26 coefficients of a sound: one frame every 5 ms, of a window of 10 ms.

    They are the logarithm of the energy, twelve of the cepstrum on the mel scale, and the change of all thirteen.
    """
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
    """Return triangles that overlap by half, equally wide on the mel scale: MELS × frequencies."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (torch.linspace(0, top, MELS + 2) / 2595) - 1)
    frequencies = torch.linspace(0, rate / 2, size // 2 + 1)
    low, middle, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    return torch.minimum((frequencies - low) / (middle - low), (high - frequencies) / (high - middle)).clamp(min=0)


def _phonemes(path: Path) -> list[int]:
    """Return the numbers of the phonemes in a sound's transcription, a file in the same directory with lines of begin,
    end and phoneme. Raises ValueError for a file that is missing, empty or damaged."""
    transcription = next((path.with_suffix(end) for end in (".PHN", ".phn") if path.with_suffix(end).is_file()), None)
    if transcription is None:
        raise ValueError(f"{path}: expected its transcription {path.with_suffix('.PHN').name} beside it, there is none")
    phonemes = []
    for number, line in enumerate(transcription.read_text(encoding="ascii", errors="replace").splitlines(), start=1):
        *span, phoneme = line.split() or [""]
        if len(span) != 2 or phoneme not in PHONEMES:
            raise ValueError(
                f"{transcription}, line {number}: expected begin, end and a phoneme of TIMIT, got {line[:60]!r}"
            )
        phonemes.append(PHONEMES.index(phoneme))
    if not phonemes:
        raise ValueError(f"{transcription}: expected phonemes, the file is empty")
    return phonemes
