"""Definition, injected fault: CIFAR-10 from a small directory made here, and everything that can be wrong with it."""

import pickle

import pytest
import torch

from tests.support.made_up.made_up_cifar import IMAGES, made, write
from workloads.catalogue.model_names import FOLDER, directory_of
from workloads.torchvision_models import CIFAR_DEVIATION, CIFAR_MEAN, cifar_batches, cifar_images


def test_images_are_resized_and_normalised(tmp_path):
    images = cifar_images(tmp_path, 48, made(tmp_path))
    assert len(images) == 5 * IMAGES
    image, label = images[6]  # file 1, image 2: grey 52
    assert image.shape == (3, 48, 48)
    assert label == 6
    for channel, (mean, deviation) in enumerate(zip(CIFAR_MEAN, CIFAR_DEVIATION, strict=True)):
        assert torch.allclose(image[channel], torch.tensor((52 / 255 - mean) / deviation), atol=1e-5)


def test_batches_lie_on_the_device_and_repeat_with_the_seed(tmp_path):
    images = cifar_images(tmp_path, 8, made(tmp_path))

    def first_labels(seed, count=2):
        batches = cifar_batches(images, 6, seed, count, torch.device("cpu"))
        assert all(batch.inputs[0].shape == (6, 3, 8, 8) and batch.target.dtype == torch.int64 for batch in batches)
        return [batch.target.tolist() for batch in batches]

    assert first_labels(1) == first_labels(1)
    assert first_labels(1) != first_labels(2)
    assert len(first_labels(1, count=9)) == 3  # 20 images: three whole batches


def one_line(fault, directory):
    text = str(fault.value)
    assert "\n" not in text
    assert f"cifar10:{directory}" in text
    assert FOLDER in text
    return text


def test_the_published_checksums_stay_in_force(tmp_path):
    made(tmp_path)
    with pytest.raises(ValueError, match="published checksum") as fault:
        cifar_images(tmp_path, 32)
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
        cifar_images(tmp_path, 32, kind)
    one_line(fault, tmp_path)


def test_the_option_names_a_directory(tmp_path):
    made(tmp_path)
    assert directory_of("synthetic") is None
    assert directory_of(f"cifar10:{tmp_path}") == tmp_path
    for wrong in ("cifar10", "cifar10:", "cifar100:x", ""):
        with pytest.raises(ValueError, match="expected synthetic or cifar10:DIR"):
            directory_of(wrong)
    with pytest.raises(ValueError, match="no data_batch_1"):
        directory_of("cifar10:/nowhere")
