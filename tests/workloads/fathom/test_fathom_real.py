"""Definition, injected fault: loaders of the real data sets, on small files made here, whole and faulty."""

import math
import struct

import numpy as np
import pytest
import torch
from PIL import Image

from workloads.any_model import mismatch
from workloads.fathom import data_sets, memnet, speech
from workloads.fathom.registry import FathomModel, get


def words(sentence):
    return " ".join(memnet.WORDS[number] for number in sentence.tolist() if number != memnet.PAD)


def idx(path, array):
    """The files' own form: two zeros, the type of unsigned bytes, dimensions, sizes, data."""
    head = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(f">{array.ndim}i", *array.shape)
    path.write_bytes(head + array.tobytes())


def mnist(directory, images=5):
    folder = directory / "MNIST" / "raw"
    folder.mkdir(parents=True)
    pixels = np.random.default_rng(0).integers(0, 256, (images, 28, 28), dtype=np.uint8)
    pixels[:, 0, 0] = 0  # a corner that is black in all
    for part, held in (("train", pixels), ("t10k", pixels)):
        idx(folder / f"{part}-images-idx3-ubyte", held)
        idx(folder / f"{part}-labels-idx1-ubyte", np.zeros(images, dtype=np.uint8))
    return folder, pixels


def pictures(directory, classes=2, images=2):
    for label in range(classes):
        (directory / f"n{label:04}").mkdir(parents=True)
        for place in range(images):
            colour = (50 * label, 10 * place, 255)
            Image.new("RGB", (80, 60), colour).save(directory / f"n{label:04}" / f"{place}.png")


CPU = torch.device("cpu")


def first(workload, directory, size=2):
    """The first batch, which is one that the workload takes."""
    batch = next(data_sets.batches(workload, directory, size, CPU))
    assert mismatch(workload, batch) == ""
    return batch


def refused(workload, directory, said, size=2):
    with pytest.raises(ValueError, match=said) as fault:
        next(data_sets.batches(workload, directory, size, CPU))
    assert "\n" not in str(fault.value)


def test_every_workload_of_fathom_has_a_loader_and_a_directory_is_one(tmp_path):
    assert set(data_sets.LOADERS) == {"seq2seq", "memnet", "fathom-speech", "autoenc", "residual", "fathom-vgg",
                                 "fathom-alexnet", "deepq", "vit"}  # fmt: skip
    refused(get("gpt2@small"), tmp_path, "gpt2@small has no real data set; those that have: seq2seq, ")
    refused(get("memnet"), tmp_path / "none", "expected a directory with its data set, got ")


# --- bAbI ---

BABI = """1 Mary moved to the bathroom.
2 John went back to the hallway.
3 Where is Mary? \tbathroom\t1
4 Daniel travelled to the office.
5 Mary journeyed to the garden.
6 Where is Mary? \tgarden\t5
1 Sandra went to the kitchen.
2 John moved to the bedroom.
3 Where is John? \tbedroom\t2
"""
TASK = "qa1_single-supporting-fact_train.txt"


def test_babi(tmp_path):
    (tmp_path / TASK).write_text(BABI)
    workload = get("memnet", memory=3)
    batch = first(workload, tmp_path, 3)
    story, question = batch.inputs
    assert [words(sentence) for sentence in story[0]] == [
        "mary moved to the bathroom",
        "john went back to the hallway",
        "",
    ]
    assert words(story[1][0]) == "john went back to the hallway", "the last three of four sentences"
    assert [words(row) for row in question] == ["where is mary", "where is mary", "where is john"]
    assert [memnet.WORDS[int(answer)] for answer in batch.target] == ["bathroom", "garden", "bedroom"]
    model = FathomModel("memnet", init_options={"data": tmp_path, "batch_size": 3})
    model.setup()
    assert len(model.run(n_steps=2)) == 2, "epoch after epoch"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "expected qa1_single-supporting-fact_train.txt, there is none"),
        ("", "expected lines of text, the file is empty"),
        ("1 Mary ate the apple.\n", "line 1: expected a line of bAbI's first task, got '1 Mary ate the apple.'"),
        ("1 Mary moved to the bathroom.\nWhere", "line 2: expected a line of bAbI"),
        ("1 Mary moved to the bathroom.\n", "expected stories with questions, got none"),
        (BABI, "a batch of 9 is larger than the data of memnet there"),
    ],
)
def test_babi_that_cannot_be_read(tmp_path, text, said):
    if text is not None:
        (tmp_path / TASK).write_text(text)
    refused(get("memnet"), tmp_path, said, size=9)


# --- WMT ---


def test_pairs_of_texts(tmp_path):
    """Words by frequency from 4 on: "the" 4, then as seen: "cat" 5, "sees" 6, "dog" 7, "." 8. Digits become 0."""
    (tmp_path / "news.en").write_text("The cat sees the dog.\nthe cat\n\na far too long sentence of many words here\n")
    (tmp_path / "news.fr").write_text("le chat voit le chien .\nle chat 1999\nvide\nune phrase\n")
    workload = get("seq2seq", source_words=7, target_words=8, vocab=9, negatives=5)
    batch = first(workload, tmp_path)
    source, fed, labels, negatives = batch.inputs
    assert source.tolist() == [[0, 8, 7, 4, 6, 5, 4], [0, 0, 0, 0, 0, 5, 4]], "padded, reversed"
    assert fed.tolist()[1] == [1, 4, 5, 3, 0, 0, 0, 0], "0000 is not among the five most frequent"
    assert labels.tolist()[1] == [4, 5, 3, 2, 0, 0, 0, 0]
    assert negatives.shape == (8, 5)
    assert torch.equal(batch.target, labels)


def test_texts_that_cannot_be_read(tmp_path):
    workload = get("seq2seq@small")
    refused(workload, tmp_path, r"expected NAME.en and NAME.fr, two texts of one name; got no such pair")
    (tmp_path / "news.en").write_text("one\ntwo\n")
    (tmp_path / "news.fr").write_text("un\n")
    refused(workload, tmp_path, r"news.fr: expected as many lines as news.en has, 2, got 1")
    (tmp_path / "news.fr").write_text("un " * 60 + "\n" + "deux " * 60 + "\n")
    refused(workload, tmp_path, "expected a pair of at most 10 and 11 words, got none")


# --- TIMIT ---


def utterance(directory, name, phonemes, samples=1600, cut=0, header=b"NIST_1A\n   1024\n"):
    """A tone of 1 kHz in SPHERE's form, 16,000 samples a second."""
    fields = f"sample_count -i {samples}\nsample_rate -i 16000\nsample_n_bytes -i 2\nsample_byte_format -s2 01\n"
    head = (header + fields.encode() + b"sample_coding -s3 pcm\nend_head\n").ljust(1024)
    tone = [int(16000 * math.sin(2 * math.pi * 1000 * at / 16000)) for at in range(samples)]
    data = struct.pack(f"<{samples}h", *tone)
    (directory / f"{name}.WAV").write_bytes(head + data[: len(data) - cut])
    lines = [f"{at * 10} {at * 10 + 10} {each}" for at, each in enumerate(phonemes)]
    (directory / f"{name}.PHN").write_text("\n".join(lines) + "\n")


def test_sound_and_its_phonemes(tmp_path):
    (tmp_path / "dr1").mkdir()
    utterance(tmp_path / "dr1", "a", ["h#", "sh", "iy", "h#"])
    utterance(tmp_path / "dr1", "b", ["h#", "ae", "h#"], samples=1200)
    utterance(tmp_path / "dr1", "c", ["h#"] * 30)
    for name, seen in (("fathom-speech@small", [4, 3]), ("fathom-speech@as_paper@small", [19, 14])):
        batch = first(get(name), tmp_path)
        (sound,), (labels, frames, lengths) = batch.inputs, batch.target
        assert sound.shape == (2, 96, 26)
        assert sound[0, :19].abs().sum(dim=1).gt(0).all(), "1 + (1600 - 160) / 80 frames"
        assert not sound[0, 19:].any()
        assert [speech.PHONEMES[label] for label in labels[0, :4]] == ["h#", "sh", "iy", "h#"]
        assert lengths.tolist() == [4, 3], "the third has more labels than there is room for"
        assert frames.tolist() == seen
    assert len(speech.PHONEMES) == len(set(speech.PHONEMES)) == 61


def test_coefficients_of_a_tone():
    """It stays the same, so that nothing changes; twice as loud the energy has ln 4 more, and the cepstrum is the same.
    Its power is in the filter around 1 kHz."""
    at = torch.arange(16000) / 16000
    tone = torch.sin(2 * math.pi * 1000 * at)
    once, twice = (speech.coefficients(gain * tone, 16000) for gain in (0.25, 0.5))
    assert once.shape == (199, 26)
    torch.testing.assert_close(once[:, 13:], torch.zeros(199, 13), atol=2e-2, rtol=0)
    torch.testing.assert_close(twice[:, 0] - once[:, 0], torch.full((199,), math.log(4)), atol=1e-4, rtol=0)
    torch.testing.assert_close(twice[:, 1:13], once[:, 1:13], atol=2e-2, rtol=0)
    filters = speech._filters(256, 16000)
    loudest = int(filters[:, round(1000 / 16000 * 256)].argmax())
    edges = [700 * (10 ** (place * 2595 * math.log10(1 + 8000 / 700) / 27 / 2595) - 1) for place in range(28)]
    assert edges[loudest] < 1000 < edges[loudest + 2]


def test_sound_that_cannot_be_read(tmp_path):
    workload = get("fathom-speech@small")
    refused(workload, tmp_path, "expected .WAV files of TIMIT, with .PHN beside them; got none")
    utterance(tmp_path, "a", ["h#"], cut=600)
    refused(workload, tmp_path, "a.WAV: expected 1600 samples, the file is cut off after 1300")
    utterance(tmp_path, "a", ["h#"], header=b"NIST_1A\n   tens\n")
    refused(workload, tmp_path, "a.WAV: its header is damaged: ValueError")
    utterance(tmp_path, "a", ["zz"])
    refused(workload, tmp_path, r"a.PHN, line 1: expected begin, end and a phoneme of TIMIT, got '0 10 zz'")
    utterance(tmp_path, "a", ["h#"] * 17)
    refused(workload, tmp_path, "expected utterances of 96 frames at most; all are longer")


# --- Atari ---


def recorded(directory, count=12, **other):
    frames = np.zeros((count, 210, 160, 3), dtype=np.uint8)
    frames += (10 * np.arange(count, dtype=np.uint8)).reshape(-1, 1, 1, 1)
    held = {
        "frames": frames,
        "actions": np.arange(count) % 4,
        "rewards": np.where(np.arange(count) == 4, 7.0, 0.0),
        "terminals": np.arange(count) == 6,
    }
    np.savez(directory / "frames.npz", **{name: each for name, each in {**held, **other}.items() if each is not None})


def test_transitions_of_a_recorded_game(tmp_path):
    """Of frames 0 to 11, the game ending with 6, states end at 3 to 6 and, of the next game, 10."""
    recorded(tmp_path)
    states, actions, rewards, after, ended = first(get("deepq"), tmp_path, 5).inputs
    grey = (states[:, :, 40, 40] * 255 / 10).round().int()
    assert grey[:, 0].tolist() == [3, 4, 5, 6, 10]
    assert grey[0].tolist() == [3, 2, 1, 0], "the newest first"
    assert (after[:, 0, 0, 0] * 25.5).round().int().tolist() == [4, 5, 6, 7, 11]
    assert actions.tolist() == [3, 0, 1, 2, 2]
    assert rewards.tolist() == [0, 1, 0, 0, 0], "their sign"
    assert ended.tolist() == [0, 0, 0, 1, 0]


def test_games_that_cannot_be_read(tmp_path):
    workload = get("deepq")
    refused(workload, tmp_path, "expected frames.npz with frames, actions, rewards, terminals; there is none")
    recorded(tmp_path, actions=np.full(12, 9))
    refused(workload, tmp_path, "expected actions below 4, got 9")
    recorded(tmp_path, rewards=np.zeros(3))
    refused(workload, tmp_path, r"expected N frames of 210 × 160 × 3 and N of each other array, got .*rewards \(3,\)")
    recorded(tmp_path, terminals=np.ones(12, dtype=bool))
    refused(workload, tmp_path, "expected 5 frames of one game in a row, got fewer")
    path = tmp_path / "frames.npz"
    path.write_bytes(path.read_bytes()[:3000])
    refused(workload, tmp_path, "expected arrays frames, actions, rewards, terminals: ")


def test_images_that_cannot_be_read(tmp_path):
    refused(get("vit@small"), tmp_path, "expected a directory of images for each class: ")
    pictures(tmp_path, classes=3)
    refused(get("vit@small", num_classes=2), tmp_path, "expected at most 2 classes of images, got 3")
    path = tmp_path / "n0000" / "1.png"
    path.write_bytes(path.read_bytes()[:40])
    refused(get("vit@small"), tmp_path, r"n0000/1.png: expected an image: ")


def test_digits_that_cannot_be_read(tmp_path):
    refused(get("autoenc"), tmp_path, "expected MNIST/raw/train-images-idx3-ubyte and its labels: Dataset not found")
    folder, _ = mnist(tmp_path)
    refused(get("autoenc"), tmp_path, "a batch of 6 is larger than the data", size=6)
    held = (folder / "train-images-idx3-ubyte").read_bytes()
    (folder / "train-images-idx3-ubyte").write_bytes(held[:-10])
    refused(get("autoenc"), tmp_path, "expected MNIST/raw/train-images-idx3-ubyte and its labels: ")


def test_images_by_class(tmp_path):
    pictures(tmp_path / "train")
    batch = first(get("fathom-vgg@small"), tmp_path, 4)
    assert batch.target.tolist() == [0, 0, 1, 1]
    expected = (50 / 255 - 0.485) / 0.229
    torch.testing.assert_close(batch.inputs[0][2, 0], torch.full((64, 64), expected), atol=1e-5, rtol=1e-5)
    coded = get("residual", image_size=32)
    assert first(coded, tmp_path / "train", 4).target.tolist() == [1, 1, 2, 2], "class 0 of 1,001 is the background"
