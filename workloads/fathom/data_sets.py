"""Reads the real data sets of Fathom's workloads from a local directory: bAbI, WMT, TIMIT, MNIST, ImageNet, Atari.

Fathom is a suite of eight deep-learning workloads. `batches` takes a workload and the directory of its data, and yields
batches on the device without end. Each loader yields one epoch of whole batches on the CPU, in the order of the files,
without shuffling. A loader raises ValueError, one line, for files that are missing, cut short, or of another form.
`memnet` reads bAbI's first task, `seq2seq` a text and its translation (WMT), `deepq` frames of Atari. `autoenc` reads
MNIST and the image networks ImageNet by torchvision's readers. `speech.py` reads TIMIT. `docs/characterize.md` lists a
directory's files. Nothing is downloaded.
"""

import contextlib
import operator
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from results.process import load
from workloads.catalogue.base import Batch, Workload, log_uniform
from workloads.catalogue.entries import base
from workloads.fathom import memnet
from workloads.fathom.deepq import FRAMES
from workloads.fathom.seq2seq import END, GO, PAD, WORDS

Loader = Callable[[Path, Workload, int], Iterator[Batch]]

LOADERS: Mapping[str, str] = {
    "seq2seq": "workloads.fathom.data_sets:wmt",
    "memnet": "workloads.fathom.data_sets:babi",
    "fathom-speech": "workloads.fathom.speech:timit",
    "autoenc": "workloads.fathom.data_sets:mnist",
    "deepq": "workloads.fathom.data_sets:atari",
    **dict.fromkeys(("residual", "fathom-vgg", "fathom-alexnet", "vit"), "workloads.fathom.data_sets:imagenet"),
}
"""Model → the loader of its data set, as "module:function", which is imported on demand."""


def batches(workload: Workload, directory: Path, size: int, device: torch.device) -> Iterator[Batch]:
    """Return batches of the real data on the device, epoch after epoch, each made when it is asked for.

    Raises ValueError at once for a workload without a loader or a path that is not a directory, and at the first batch
    for files that cannot be read, or fewer samples than a batch has.
    """
    if base(workload.name) not in LOADERS:
        raise ValueError(f"{workload.name} has no real data set; those that have: {', '.join(LOADERS)}")
    if not directory.is_dir():
        raise ValueError(f"{workload.name}: expected a directory with its data set, got {directory}")
    return _endless(load(LOADERS[base(workload.name)]), workload, directory, size, device)


def _endless(loader: Loader, workload: Workload, directory: Path, size: int, device: torch.device) -> Iterator[Batch]:
    while True:
        has_batch = False
        for batch in loader(directory, workload, size):
            has_batch = True
            yield Batch(*tree_map_only(torch.Tensor, lambda value: value.to(device), (batch.inputs, batch.target)))
        if not has_batch:
            raise ValueError(f"{directory}: a batch of {size} is larger than the data of {workload.name} there")


def sliced(inputs: tuple[torch.Tensor, ...], target: object, size: int) -> Iterator[Batch]:
    """Yield whole batches of samples that are all in memory, in order; the last, partial one is left out."""
    for start in range(0, len(inputs[0]) - size + 1, size):
        rows = operator.itemgetter(slice(start, start + size))
        yield Batch(*tree_map_only(torch.Tensor, rows, (inputs, target)))


BACKGROUND = 1001
"""Number of classes of Fathom's networks. The first one means none of ImageNet's 1,000."""

MEAN, STANDARD_DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Means and deviations of ImageNet's red, green and blue, on a scale of 0 to 1."""

NAMES = ("frames", "actions", "rewards", "terminals")
GREY = (0.299, 0.587, 0.114)
TALL, CROPPED = 110 / 84, 18 / 84
"""Height of a frame, and of the rows cut off at its top, ÷ the network's side, to which its width is scaled."""


@contextlib.contextmanager
def _reading(expected: str) -> Iterator[None]:
    """Turn any exception about a missing, damaged or wrong file into a ValueError of one line, beginning with
    `expected`."""
    try:
        yield
    except (
        OSError,
        RuntimeError,
        ValueError,
        AssertionError,
        KeyError,
        TypeError,
        SyntaxError,
        EOFError,
        zipfile.BadZipFile,
    ) as fault:
        raise ValueError(f"{expected}: {' '.join(str(fault).split())[:120]}") from fault


def mnist(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Return batches of training images as rows of pixels, each pixel of mean 0 and variance 1 over the images."""
    from torchvision.datasets import MNIST

    with _reading(f"{directory}: expected MNIST/raw/train-images-idx3-ubyte and its labels"):
        images = MNIST(str(directory), train=True, download=False).data.flatten(1).float()
    if images.shape[1] != workload.hyper["pixels"]:
        raise ValueError(f"{directory}: expected images of {workload.hyper['pixels']} pixels, got {images.shape[1]}")
    deviation = images.std(dim=0, unbiased=False)
    images = (images - images.mean(dim=0)) / torch.where(deviation > 0, deviation, 1.0)
    return sliced((images,), images, size)


def imagenet(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Yield batches of a directory with a folder of images for each class, resized and cropped to the workload's side.
    Images are read when a batch is requested."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import CenterCrop, Compose, Normalize, Resize, ToTensor

    side, classes = workload.hyper["image_size"], workload.hyper["num_classes"]
    steps = Compose([Resize(side), CenterCrop(side), ToTensor(), Normalize(MEAN, STANDARD_DEVIATION)])
    root = directory / "train" if (directory / "train").is_dir() else directory
    with _reading(f"{root}: expected a directory of images for each class"):
        images = ImageFolder(str(root), transform=steps)
    first = 1 if classes == BACKGROUND else 0
    if len(images.classes) + first > classes:
        raise ValueError(f"{root}: expected at most {classes - first} classes of images, got {len(images.classes)}")
    for start in range(0, len(images) - size + 1, size):
        samples = []
        for index in range(start, start + size):
            with _reading(f"{images.samples[index][0]}: expected an image"):
                samples.append(images[index])
        labels = torch.tensor([first + label for _, label in samples])
        yield Batch((torch.stack([image for image, _ in samples]),), labels)


def atari(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Return batches of transitions within recorded games: four frames, the newest first, action, sign of the reward,
    the next four frames, and whether the game ended."""
    path, side = directory / "frames.npz", workload.hyper["image_size"]
    held = _arrays(path)
    if int(held["actions"].max()) >= workload.hyper["actions"]:
        raise ValueError(
            f"{path}: expected actions below {workload.hyper['actions']}, got {int(held['actions'].max())}"
        )
    frames, ended = preprocessed(held["frames"], side), held["terminals"].bool()
    last = [t for t in range(FRAMES - 1, len(frames) - 1) if not ended[t - FRAMES + 1 : t].any()]
    if not last:
        raise ValueError(f"{path}: expected {FRAMES + 1} frames of one game in a row, got fewer")
    indices = torch.tensor(last).unsqueeze(1) - torch.arange(FRAMES)
    inputs = (
        frames[indices], held["actions"][indices[:, 0]].long(), held["rewards"][indices[:, 0]].float().sign(),
        frames[indices + 1], ended[indices[:, 0]].float(),
    )  # fmt: skip
    return sliced(inputs, None, size)


def preprocessed(frames: torch.Tensor, side: int) -> torch.Tensor:
    """Turn frames of N × 210 × 160 × 3 from 0 to 255 into N × side × side from 0 to 1: grey, scaled, and without the
    score above and below."""
    grey = (frames.float() @ torch.tensor(GREY) / 255).unsqueeze(1)
    small = functional.interpolate(grey, (round(TALL * side), side), mode="area").squeeze(1)
    top = round(CROPPED * side)
    return small[:, top : top + side]


def _arrays(path: Path) -> Mapping[str, torch.Tensor]:
    """Return the arrays of a recording. Raises ValueError for a file that is missing, damaged, or lacks an array."""
    import numpy as np

    if not path.is_file():
        raise ValueError(f"{path.parent}: expected frames.npz with {', '.join(NAMES)}; there is none")
    expected = f"{path}: expected arrays {', '.join(NAMES)}"
    with _reading(expected), path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        arrays = {name: torch.from_numpy(stored[name]) for name in NAMES}
    frames = arrays["frames"]
    if frames.dim() != 4 or frames.shape[3] != 3 or len({len(array) for array in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(array.shape)}" for name, array in arrays.items())
        raise ValueError(f"{path}: expected N frames of 210 × 160 × 3 and N of each other array, got {shapes}")
    return arrays


TASK = "qa1_single-supporting-fact_train.txt"
UNKNOWN = 3


def babi(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Return batches of questions, each with the last sentences of its story so far, as many as the memory holds."""
    hyper, path = workload.hyper, directory / TASK
    stories, questions, answers = [], [], []
    story: list[list[int]] = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            line_number, _, text = line.partition(" ")
            story = [] if int(line_number) == 1 else story
            question, *answer = text.split("\t")
            tokens = memnet.numbers(question)
            if not answer:
                story.append(_padded(tokens, hyper["sentence"]))
                continue
            empty = [[memnet.PAD] * hyper["sentence"]] * hyper["memory"]
            stories.append((story[-hyper["memory"] :] + empty)[: hyper["memory"]])
            questions.append(_padded(tokens, hyper["sentence"]))
            answers.append(memnet.numbers(answer[0])[0])
        except (KeyError, ValueError, IndexError) as fault:
            raise ValueError(
                f"{path}, line {number}: expected a line of bAbI's first task, got {line[:60]!r}"
            ) from fault
    if not stories:
        raise ValueError(f"{path}: expected stories with questions, got none")
    return sliced((torch.tensor(stories), torch.tensor(questions)), torch.tensor(answers), size)


def _padded(tokens: list[int], length: int) -> list[int]:
    if len(tokens) > length:
        raise ValueError(f"expected {length} words at most, got {len(tokens)}")
    return tokens + [PAD] * (length - len(tokens))


def wmt(directory: Path, workload: Workload, size: int) -> Iterator[Batch]:
    """Return batches of the pairs of sentences in NAME.en and NAME.fr that are not longer than the workload's sizes. A
    language's vocabulary is its most frequent words."""
    hyper, (source, target) = workload.hyper, _texts(directory)
    read, written = (
        [re.findall(r"\w+|[^\w\s]", re.sub(r"\d", "0", line.lower())) for line in _lines(path)[:100_000]]
        for path in (source, target)
    )
    if len(read) != len(written):
        raise ValueError(f"{target}: expected as many lines as {source.name} has, {len(read)}, got {len(written)}")
    counts = [Counter(word for sentence in sentences for word in sentence) for sentences in (read, written)]
    numbers, numbers_written = (
        {word: WORDS + index for index, (word, _) in enumerate(counted.most_common(hyper["vocab"] - WORDS))}
        for counted in counts
    )
    longest, room = hyper["source_words"], hyper["target_words"] - 1
    inputs, fed, labels = [], [], []
    for words_read, words_written in zip(read, written, strict=True):
        if not words_read or not words_written or len(words_read) > longest or len(words_written) > room:
            continue
        inputs.append(_padded([numbers.get(word, UNKNOWN) for word in words_read], longest)[::-1])
        translated = [numbers_written.get(word, UNKNOWN) for word in words_written]
        fed.append(_padded([GO, *translated], room + 1))
        labels.append(_padded([*translated, END], room + 1))
    if not inputs:
        raise ValueError(f"{source}: expected a pair of at most {longest} and {room} words, got none")
    samples = torch.tensor(inputs), torch.tensor(fed), torch.tensor(labels)
    return _with_negatives(sliced(samples, samples[2], size), hyper)


def _with_negatives(batches: Iterator[Batch], hyper: Mapping[str, int]) -> Iterator[Batch]:
    drawn = torch.Generator().manual_seed(0)
    for batch in batches:
        sizes = (hyper["target_words"], hyper["negatives"])
        negatives = log_uniform(sizes, hyper["vocab"], torch.device("cpu"), drawn)
        yield Batch((*batch.inputs, negatives), batch.target)


def _texts(directory: Path) -> tuple[Path, Path]:
    """Return the first pair of texts in a directory. Raises ValueError if there is none."""
    for source in sorted(directory.glob("*.en")):
        target = source.with_suffix(".fr")
        if target.is_file():
            return source, target
    raise ValueError(f"{directory}: expected NAME.en and NAME.fr, two texts of one name; got no such pair")


def _lines(path: Path) -> list[str]:
    """Return the lines of a text. Raises ValueError, one line, for a file that is missing, empty or no text."""
    if not path.is_file():
        raise ValueError(f"{path.parent}: expected {path.name}, there is none")
    with _reading(f"{path}: expected a text in UTF-8"):
        lines = path.read_text(encoding="utf-8").splitlines()
    if not lines:
        raise ValueError(f"{path}: expected lines of text, the file is empty")
    return lines
