"""Definition, law: the grid has each cell once, in an order that the seed decides, under identifiers that stay."""

import dataclasses
import hashlib
import itertools
import json

import pytest

from analysis.counters import COUNTERS
from analysis.utilization.work_times import passes_of
from results.records.cell import Cell
from results.records.rows import header
from runners.sweep.plan import METHODS, Grid, cells, check

MODELS = ("resnet18", "vgg11", "alexnet")


def grid(**more: object) -> Grid:
    return Grid(**{"models": MODELS, "batch_sizes": (1, 2), "precisions": ("fp32", "tf32"), "device": "cuda", **more})


def points(planned: list[Cell]) -> list[tuple[str, int, str, int]]:
    return [(cell.model, cell.batch_size, cell.precision, cell.repeat) for cell in planned]


class TestIdentifiers:
    """Each is the head of `printf '%s' JSON | sha256sum`, the JSON being what differs from the defaults."""

    GOLDEN = [
        (
            {"model": "resnet18", "batch_size": 8, "device": "cpu"},
            '{"batch_size":8,"device":"cpu","model":"resnet18"}',
            "2d48c5cfacc0a1a9",
        ),
        (
            {
                "model": "resnet50",
                "batch_size": 64,
                "device": "cuda",
                "precision": "amp-bf16",
                "layout": "channels_last",
                "quick": True,
                "repeat": 1,
                "seed": 3,
            },
            '{"batch_size":64,"device":"cuda","layout":"channels_last","model":"resnet50",'
            '"precision":"amp-bf16","quick":true,"repeat":1,"seed":3}',
            "edc436bad11513d9",
        ),
    ]

    @pytest.mark.parametrize(("parameters", "text", "expected"), GOLDEN)
    def test_golden(self, parameters, text, expected):
        assert hashlib.sha256(text.encode()).hexdigest()[:16] == expected
        assert Cell(**parameters).cell_id == expected

    def test_every_parameter_that_differs_makes_another_cell(self):
        plain = Cell(model="resnet18", batch_size=8, device="cpu")
        other = {
            "model": "vgg11",
            "batch_size": 9,
            "device": "cuda",
            "precision": "tf32",
            "layout": "channels_last",
            "compile": True,
            "optimizer": "adam",
            "image_size": 224,
            "num_classes": 1000,
            "hyper": {"width": 32},
            "methods": ("exact",),
            "counters": (),
            "data": "cifar10:here",
            "cudnn_benchmark": False,
            "deterministic": True,
            "target_ci_ratio": 0.03,
            "quick": True,
            "repeat": 1,
            "seed": 1,
            "epoch_images": 50,
            "input_pipeline": True,
            "profile": "kineto",
            "inputs": "3x8x8",
            "batch_maker": "net.py:batches",
            "frozen": ("features.*",),
            "checkpoint": ("layer1",),
            "paired_ceiling": True,
            "malloc": "retain",
            "threads": 1,
            "wait_policy": "passive",
            "model_digest": "0123456789abcdef",
            "parallel": "ddp=2",
        }
        assert tuple(other) == header(Cell), "each parameter of a cell"
        changed = {dataclasses.replace(plain, **{name: value}).cell_id for name, value in other.items()}
        assert len(changed | {plain.cell_id}) == len(other) + 1


class TestOrder:
    def test_every_point_of_the_grid_once(self):
        planned = cells(grid(repeat=2))
        assert sorted(points(planned)) == sorted(itertools.product(MODELS, (1, 2), ("fp32", "tf32"), (0, 1)))
        assert len({cell.cell_id for cell in planned}) == len(planned) == 3 * 2 * 2 * 2

    def test_the_seed_decides_the_order_and_nothing_else_does(self):
        assert points(cells(grid(seed=7))) == points(cells(grid(seed=7)))
        orders = {tuple(points(cells(grid(seed=seed)))) for seed in range(20)}
        assert len(orders) == 20
        assert len({frozenset(order) for order in orders}) == 1

    def test_repeats_come_one_after_the_other_each_in_an_order_of_its_own(self):
        planned = cells(grid(repeat=4))
        assert [cell.repeat for cell in planned] == [0] * 12 + [1] * 12 + [2] * 12 + [3] * 12
        orders = [tuple(points(planned[i : i + 12])) for i in range(0, 48, 12)]
        assert len({tuple((m, b, p) for m, b, p, _ in order) for order in orders}) == 4


class TestGrid:
    def test_single_values_of_an_older_manifest_are_lists_of_one(self):
        old = {**grid().as_json(), "layout": "channels_last", "compile": True, "optimizer": "adam"}
        asked = grid(layout=("channels_last",), compile=(True,), optimizer=("adam",))
        assert Grid.from_json(json.loads(json.dumps(old))) == asked
        assert {(cell.layout, cell.compile, cell.optimizer) for cell in cells(asked)} == {
            ("channels_last", True, "adam")
        }

    def test_methods_and_counters_have_one_order(self):
        """The order in which they are typed makes no other cell, which would be measured again."""
        for names, field in ((METHODS, "methods"), (tuple(COUNTERS), "counters")):
            one = cells(grid(**{"methods": METHODS, field: names[::-1]}))
            other = cells(grid(**{"methods": METHODS, field: names}))
            assert one == other
            assert getattr(one[0], field) == names

    def test_an_epoch_is_a_parameter_only_of_cells_that_have_one(self):
        """Else every identifier would change with an option that changes no measurement of theirs."""
        assert cells(grid(epoch_images=50)) == cells(grid())
        asked = grid(methods=("theory", "epoch", "exact"))
        assert {cell.epoch_images for cell in cells(asked)} == {10_000}
        assert {cell.epoch_images for cell in cells(dataclasses.replace(asked, epoch_images=50))} == {50}


class TestWorks:
    """What is measured beside a cell's own step follows from its methods, its batch and its epoch."""

    @pytest.mark.parametrize(
        ("methods", "asked"),
        [
            (("theory", "exact"), ()),
            (("one",), ("one",)),
            (("batch",), ("batch",)),
            (("epoch",), ("batch", "last", "epoch")),
            (("one", "epoch"), ("one", "batch", "last", "epoch")),
            (METHODS, ("one", "batch", "last", "epoch")),
        ],
    )
    def test_of_methods(self, methods, asked):
        assert passes_of(Cell(model="vgg11", batch_size=4, device="cpu", methods=methods, epoch_images=10)) == asked


class TestEpochs:
    def test_one_smaller_than_a_batch_is_a_mistake(self):
        asked = {"batch_sizes": (1, 64), "methods": ("epoch",)}
        check(grid(**asked, epoch_images=64))
        with pytest.raises(ValueError, match="--epoch-images: expected at least 64, one largest batch, got 63"):
            check(grid(**asked, epoch_images=63))
        check(grid(batch_sizes=(64,), epoch_images=63))  # which no cell is to have
