"""Repeats on several devices are kept apart by their variant, in rows and in the figure's points."""

from __future__ import annotations

from cleaning.reconcile.device_repeats import kept_apart
from results.records.answers import Utilization
from results.records.cell import Run, Sitting
from results.store.layout import key_of


def rows_on(*places: tuple[str, str], variant: str = "", devices: tuple[str, ...] = ()) -> list[str]:
    """The variants of repeats of one cell, each in a session on this host and device."""
    sittings = [
        Sitting(sitting=f"s{n}", started_at="", host=host, device="cuda", device_name="X", device_uuid=uuid)
        for n, (host, uuid) in enumerate(places)
    ]
    names = [{"cell_id": f"c{n}", "attempt": 1, "model": "m", "batch_size": 8} for n in range(len(places))]
    runs = [Run(**name, device="cuda", sitting=f"s{n}", status="ok", repeat=n) for n, name in enumerate(names)]
    rows = [
        Utilization(
            **name, precision="fp32", device=devices[n] if devices else "cuda", method="exact",
            numerator_source="flopledger", denominator="datasheet", variant=variant, repeat=n,
        )
        for n, name in enumerate(names)
    ]  # fmt: skip
    found = kept_apart(rows, {key_of(run): run for run in runs}, sittings)
    assert [row.cell_id for row in found] == [row.cell_id for row in rows]
    return [row.variant for row in found]


def test_repeats_on_one_device_stay_one_cell():
    assert rows_on(("a", "u1"), ("a", "u1")) == ["", ""]
    assert rows_on(("a", "u1"), ("a", "u1"), variant="compile=true") == ["compile=true"] * 2


def test_a_cpu_and_a_gpu_of_one_host_have_no_repeats_in_common():
    assert rows_on(("a", ""), ("a", "u1"), devices=("cpu", "cuda")) == ["", ""]
    assert rows_on(("a", "u1"), ("b", "u2"), devices=("cuda:0", "cuda:1")) == ["device=a", "device=b"]


def test_repeats_on_several_hosts_have_their_names():
    assert rows_on(("a", "u1"), ("b", "u2"), ("a", "u1")) == ["device=a", "device=b", "device=a"]


def test_devices_of_one_host_have_their_hashes():
    found = rows_on(("a", "0123456789"), ("a", "9876543210"), ("b", "x"), variant="compile=true")
    assert found == ["compile=true, device=a 01234567", "compile=true, device=a 98765432", "compile=true, device=b"]
