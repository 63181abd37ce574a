"""Zeus' epochs and MLPerf's systems: what is kept of a row, and the reason why it has no utilization."""

from __future__ import annotations

import pytest

from analysis.atlas import is_mlperf, is_zeus, published_steps, read_mlperf, read_zeus, summary

HEAD = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power"


@pytest.fixture
def epochs(tmp_path):
    def of(*lines, device="a40"):
        path = tmp_path / "zeus" / f"summary_power_{device}.csv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join([HEAD, *lines]) + "\n")
        assert is_zeus(path)
        return list(read_zeus(path))

    return of


def test_an_epoch_is_items_a_second_and_joules_an_item(epochs):
    """1,281,167 images in 4,000 s at 200 W: 800 kJ; steps of 256 are 5,005 (the last is smaller)."""
    (row,) = epochs("imagenet,resnet50,256,adadelta,250,4000,200")
    assert (row.status, row.counted_model, row.image_size) == ("ok", "timm:resnet50", 224)
    assert row.items_per_s == pytest.approx(1_281_167 / 4000)
    assert row.energy_per_item_j == pytest.approx(800e3 / 1_281_167)
    assert row.step_time_s == pytest.approx(4000 / 5005)
    assert (row.mean_power_w, row.power_limit_w, row.precision) == (200, 250, "")


def test_a_data_set_without_a_known_size_has_no_joules(epochs):
    tokens, images, wrong = epochs(
        "squad,bert_base_uncased,32,adamw,250,4000,200", "cifar100,shufflenetv2,128,adam,100,50,80",
        "imagenet,resnet50,256,adadelta,250,0,200",
    )  # fmt: skip
    assert (tokens.status, tokens.energy_per_item_j, tokens.items_per_s) == ("no_model", None, None)
    assert (images.status, images.energy_per_item_j) == ("no_model", pytest.approx(50 * 80 / 50_000))
    assert wrong.status == "invalid"


def test_unknown_devices_and_other_tables_are_refused(epochs, tmp_path):
    with pytest.raises(ValueError, match="expected a device of a40, p100"):
        epochs(device="a41")
    path = tmp_path / "mlperf" / "v31_throughput.csv"
    path.parent.mkdir()
    path.write_text("system\nx\n")
    with pytest.raises(ValueError, match="got none called submitter"):
        list(read_mlperf(path))


def test_a_whole_system_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "mlperf" / "v31_throughput.csv"
    path.parent.mkdir()
    path.write_text("submitter,system,benchmark,points,median_samples_per_s\nA,8xH100,resnet,3,50000\n")
    assert is_mlperf(path)
    (row,) = read_mlperf(path)
    assert (row.status, row.items_per_s) == ("not_counted", None)
    assert "no batch, no precision" in row.reason


def test_no_row_of_the_sources_is_left_out():
    """As many as their tables have; those of Zeus and MLPerf have no utilization."""
    table = summary.frame(published_steps())
    rows = table.groupby("source").size()
    assert (rows["Zeus"], rows["MLPerf"], rows["NeuSight"]) == (1609, 188, 100)
    without = table[table["source"].isin(["Zeus", "MLPerf"])]
    assert without["utilization_ratio"].isna().all()
    assert (without["reason"] != "").all()


def test_energy_is_of_the_row_with_the_fewest_joules():
    from dataclasses import replace

    from analysis.atlas import PublishedStep

    row = PublishedStep(source="Zeus", commit="c", file="f", row=1, model="m", mode="train", precision="", layout="",
                        framework="torch", device="d", batch_size=8, items_per_s=10.0, power_limit_w=250.0,
                        energy_per_item_j=3.0)  # fmt: skip
    rows = [row, replace(row, energy_per_item_j=2.0, batch_size=16),
            replace(row, energy_per_item_j=1.0, power_limit_w=100.0), replace(row, energy_per_item_j=None)]  # fmt: skip
    (found,) = summary.energy(summary.frame(rows)).to_dict("records")
    assert (found["rows"], found["energy_per_item_j"], found["batch_size"], found["power_limit_w"]) == (3, 2, 16, 250)
    assert (found["least_energy_per_item_j"], found["least_power_limit_w"]) == (1, 100)
