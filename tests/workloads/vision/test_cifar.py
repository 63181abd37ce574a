"""CIFAR-10 from a directory: a small one of the right format made here, and everything that can be wrong with it."""

from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10

from workloads.catalogue.files import FILES, FOLDER, check, directory_of
from workloads.vision import cifar

IMAGES = 4  # in each of five files


def write(directory, name, content):
    folder = directory / FOLDER
    folder.mkdir(exist_ok=True)
    data = content if isinstance(content, bytes) else pickle.dumps(content)
    folder.joinpath(name).write_bytes(data)
    return hashlib.md5(data).hexdigest()


def made(directory, images=IMAGES):
    """Every image one grey: image i of file n is (50·n + i)/255 everywhere; its label is its place in all, mod 10."""
    checksums = {}
    for n in range(5):
        grey = np.array([[50 * n + i] * 3_072 for i in range(images)], dtype=np.uint8)
        labels = [(n * images + i) % 10 for i in range(images)]
        checksums[f"data_batch_{n + 1}"] = write(directory, f"data_batch_{n + 1}", {"data": grey, "labels": labels})
    checksums["test_batch"] = write(directory, "test_batch", {"data": np.zeros((1, 3_072), np.uint8), "labels": [0]})
    names = {"label_names": [f"class {i}" for i in range(10)]}
    checksums["batches.meta"] = write(directory, "batches.meta", names)
    return kind_of(checksums)


def kind_of(checksums):
    """torchvision's reader that expects these checksums in place of the published ones; it still verifies them."""

    class Small(CIFAR10):
        train_list = [[name, checksums[name]] for name in FILES if name.startswith("data_batch")]
        test_list = [["test_batch", checksums["test_batch"]]]
        meta = {**CIFAR10.meta, "md5": checksums["batches.meta"]}

    return Small


def test_the_names_are_torchvisions():
    lists = [name for name, _ in (*CIFAR10.train_list, *CIFAR10.test_list)]
    assert (*lists, CIFAR10.meta["filename"]) == FILES
    assert CIFAR10.base_folder == FOLDER


def test_images_are_resized_and_normalised(tmp_path):
    images = cifar.dataset(tmp_path, 48, made(tmp_path))
    assert len(images) == 5 * IMAGES
    image, label = images[6]  # file 1, image 2: grey 52
    assert image.shape == (3, 48, 48)
    assert label == 6
    for channel, (mean, deviation) in enumerate(zip(cifar.MEAN, cifar.STANDARD_DEVIATION, strict=True)):
        assert torch.allclose(image[channel], torch.tensor((52 / 255 - mean) / deviation), atol=1e-5)


def test_batches_lie_on_the_device_and_repeat_with_the_generator(tmp_path):
    images = cifar.dataset(tmp_path, 8, made(tmp_path))

    def first_labels(seed, count=2):
        pipeline = cifar.loader(images, 6, torch.Generator().manual_seed(seed))
        batches = cifar.preloaded(pipeline, count, torch.device("cpu"))
        assert all(batch.inputs[0].shape == (6, 3, 8, 8) and batch.target.dtype == torch.int64 for batch in batches)
        return [batch.target.tolist() for batch in batches]

    assert first_labels(1) == first_labels(1)
    assert first_labels(1) != first_labels(2)
    assert len(first_labels(1, count=9)) == 3  # 20 images: three whole batches


def test_an_epoch_can_keep_its_last_partial_batch(tmp_path):
    images = cifar.dataset(tmp_path, 8, made(tmp_path))
    sizes = [len(labels) for _, labels in cifar.loader(images, 6, torch.Generator(), drop_last=False)]
    assert sizes == [6, 6, 6, 2]
    labels = sorted(label for _, part in cifar.loader(images, 6, torch.Generator(), drop_last=False) for label in part)
    assert labels == sorted(list(range(10)) * 2)  # each image once


def one_line(fault, directory):
    text = str(fault.value)
    assert "\n" not in text
    assert f"cifar10:{directory}" in text
    assert FOLDER in text
    return text


def test_a_missing_directory_or_file(tmp_path):
    with pytest.raises(ValueError, match="no data_batch_1") as fault:
        cifar.dataset(tmp_path / "nowhere", 32)
    one_line(fault, tmp_path / "nowhere")
    kind = made(tmp_path)
    tmp_path.joinpath(FOLDER, "data_batch_3").unlink()
    with pytest.raises(ValueError, match="no data_batch_3") as fault:
        cifar.dataset(tmp_path, 32, kind)
    one_line(fault, tmp_path)


def test_the_published_checksums_stay_in_force(tmp_path):
    made(tmp_path)
    with pytest.raises(ValueError, match="published checksum") as fault:
        cifar.dataset(tmp_path, 32)
    one_line(fault, tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no pickle",
        pickle.dumps({"labels": [1]}),
        pickle.dumps([1, 2]),
        pickle.dumps({"data": [[1, 2]], "labels": [1]}),
    ],
    ids=["empty", "no pickle", "no images", "no dictionary", "wrong shape"],
)
def test_a_file_of_another_format(tmp_path, content):
    kind = made(tmp_path)
    kind.train_list[0][1] = write(tmp_path, "data_batch_1", content)
    with pytest.raises(ValueError, match="expected CIFAR-10 in") as fault:
        cifar.dataset(tmp_path, 32, kind)
    one_line(fault, tmp_path)


def test_a_batch_larger_than_the_epoch(tmp_path):
    images = cifar.dataset(tmp_path, 8, made(tmp_path))
    with pytest.raises(ValueError, match="a batch of 21 is larger than the epoch: CIFAR-10 here has 20"):
        cifar.loader(images, 21, torch.Generator())


def test_a_model_of_too_few_classes():
    cifar.check_classes(10)
    with pytest.raises(ValueError, match="--size num_classes=10"):
        cifar.check_classes(9)


def test_the_option_names_a_directory(tmp_path):
    made(tmp_path)
    assert directory_of("synthetic") is None
    assert directory_of(f"cifar10:{tmp_path}") == tmp_path
    for wrong in ("cifar10", "cifar10:", "cifar100:x", ""):
        with pytest.raises(ValueError, match="expected synthetic or cifar10:DIR"):
            directory_of(wrong)
    with pytest.raises(ValueError, match="no data_batch_1"):
        directory_of("cifar10:/nowhere")


def test_a_path_that_cannot_be_looked_at(tmp_path):
    with pytest.raises(ValueError, match="cannot read") as fault:
        check(tmp_path / ("x" * 300), FILES)
    assert "\n" not in str(fault.value)
