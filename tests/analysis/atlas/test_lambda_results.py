"""Lambda's tables: what is of a system and what of one device, and which rows have a model."""

from __future__ import annotations

import pytest

from analysis.atlas import is_lambda, read_lambda

HEAD = "name_gpu,num_gpu,watt,price,ssd,resnet50"


def write(folder, rates, batches, precision="fp16"):
    (folder / "lambda").mkdir(exist_ok=True)
    path = folder / "lambda" / f"pytorch-train-throughput-{precision}.csv"
    path.write_text("\n".join([HEAD, *rates]) + "\n")
    path.with_name(f"pytorch-train-bs-{precision}.csv").write_text("\n".join([HEAD, *batches]) + "\n")
    return path


def test_a_row_is_of_one_device_of_its_system(tmp_path):
    """Two devices: 1,000 images a step of the system at 2,000 images/s are half a second, and 500 images each."""
    path = write(tmp_path, ["2x RTX 3090,2.0,700,1,0.0,2000.0"], ["2x RTX 3090,2,700,1,8,1000"])
    assert is_lambda(path)
    ssd, resnet = read_lambda(path)
    assert (resnet.device, resnet.devices, resnet.precision) == ("NVIDIA GeForce RTX 3090", 2, "amp-fp16")
    assert (resnet.step_time_s, resnet.batch_size, resnet.items_per_s) == (0.5, 500, 1000.0)
    assert (resnet.status, resnet.image_size, resnet.layout) == ("ok", 224, "")
    assert "prints no parameters" in resnet.reason
    assert (ssd.status, ssd.reason) == ("invalid", "no throughput or batch was published")


@pytest.mark.parametrize(
    ("system", "device"),
    [
        ("LambdaCloud V100 16GB", "Tesla V100-SXM2-16GB"),
        ("LambdaCloud 4xV100 16GB", "Tesla V100-SXM2-16GB"),
        ("DellTexas 8x H100 80GB SXM5", "NVIDIA H100 80GB HBM3"),
        ("1CC H100 80GB SXM5", "NVIDIA H100 80GB HBM3"),
        ("A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("RTX A6000", "NVIDIA RTX A6000"),
        ("RTX 7777", "RTX 7777"),
    ],
)
def test_the_device_of_a_system(tmp_path, system, device):
    path = write(tmp_path, [f"{system},1,1,1,1,1"], [f"{system},1,1,1,1,1"])
    assert {row.device for row in read_lambda(path)} == {device}


def test_a_model_without_sizes_is_kept_with_the_reason(tmp_path):
    path = write(tmp_path, ["A10,1,1,1,100,1"], ["A10,1,1,1,50,1"], "fp32")
    ssd, resnet = read_lambda(path)
    assert (ssd.status, ssd.step_time_s) == ("no_model", 0.5)
    assert "does not say the sizes" in ssd.reason
    assert resnet.precision == "fp32"


def test_other_tables_are_refused(tmp_path):
    path = write(tmp_path, ["A10,1,1,1,1,1"], ["A40,1,1,1,1,1"])
    with pytest.raises(ValueError, match="expected A10 in the table of batches"):
        list(read_lambda(path))
    path.write_text("name_gpu,num_gpu\nA10,1\n")
    with pytest.raises(ValueError, match="got none called resnet50"):
        list(read_lambda(path))
    with pytest.raises(ValueError, match="expected lambda/pytorch-train-throughput"):
        list(read_lambda(tmp_path / "other.csv"))


@pytest.mark.parametrize(
    ("system", "device", "devices"),
    [
        ("LambdaOD_2x_Texas_1xH100_80GB_SXM5_192-222-52-120_v2", "NVIDIA H100 80GB HBM3", 1),
        ("ASUS_8xH200_140GB_SXM_lambda-scalar_v2", "NVIDIA H200", 8),
        ("LambdaOD_1x_1xGH200_96GB_192-222-57-0_v2", "NVIDIA GH200 480GB", 1),
        ("X_4xB200_192GB_129_v2", "NVIDIA B200", 4),
    ],
)
def test_the_second_version_has_its_devices_in_the_systems_name(tmp_path, system, device, devices):
    (tmp_path / "lambda").mkdir()
    path = tmp_path / "lambda" / "pytorch_pytorch-train-throughput-v2-fp32.csv"
    path.write_text(f",ssd,resnet50\n{system},1.0,800.0\nsomething,1.0,5.0\n")
    assert is_lambda(path)
    ssd, resnet, _, nameless = read_lambda(path)
    assert (resnet.device, resnet.devices, resnet.items_per_s) == (device, devices, 800.0 / devices)
    assert (resnet.step_time_s, resnet.batch_size, resnet.status, resnet.precision) == (None, None, "ok", "fp32")
    assert "no batch was published" in resnet.reason
    assert ssd.status == "no_model"
    assert (nameless.status, nameless.reason) == ("invalid", "the system's name does not say its devices")
