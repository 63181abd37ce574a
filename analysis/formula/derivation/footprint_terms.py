"""The footprint of a table whose sizes are forms: what is alive while each operation runs, and where that can be most.

At one order of operations live bytes are a sum of storages at every moment, and so a form; the peak is the largest of
these. `eager_peaks` has the eager order, `ordered_peaks` one that `analysis/footprint/schedule/minimum.py` found at
given sizes. Each gives a few operations with what is alive there, of which one is the peak at any sizes from given ones
on (`analysis/formula/derivation/envelopes.py`).

Nothing is told where the samples of the table are not alike: where a storage lives from other to other operations, or
where what has to come before what depends on sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy

from analysis.footprint.schedule.dependencies import BEFORE, Graph, graph
from analysis.footprint.schedule.minimum import Minimal, minimal
from analysis.footprint.step.live_bytes import footprint, settled
from analysis.formula.derivation.envelopes import Basis, Matrix, largest
from analysis.formula.derivation.interpolate import Form, Point, told, value_of
from analysis.formula.derivation.sampling import Sample, Sizes
from results.records import Storage


class Unalike(ValueError):
    """The footprint has no formula; one line says why."""


@dataclass(frozen=True)
class Peak:
    """An operation that can be the peak, and what is alive while it runs. index -1: before the first one."""

    index: int
    form: Form


class Table:
    """A table's storages as forms. least: sizes from which on peaks are to hold."""

    def __init__(self, sizes: Sizes, least: Point) -> None:
        self.samples, self.least = sizes.samples, least
        self.operations = self.samples[0].operations
        columns = zip(*(sample.storages for sample in self.samples), strict=True)
        self.forms = [sizes.form(tuple(each.nbytes or 0 for each in column)) for column in columns]
        self.basis = Basis(self.forms)
        self._rows = numpy.array([self.basis.row(form) for form in self.forms], dtype=numpy.int64).reshape(
            len(self.forms), len(self.basis.monomials)
        )

    def eager_peaks(self) -> list[Peak]:
        """Of the eager order. Raises Unalike where storages live otherwise at some sample."""
        lives = [_lives(sample) for sample in self.samples]
        if other := next((s for s, found in zip(self.samples, lives, strict=True) if found != lives[0]), None):
            raise Unalike(f"storages live otherwise at {told(other.point)}")
        moments = len(self.operations) + 1
        spans = [(born + 1, moments if died is None else died + 2) for born, died in lives[0]]
        rows = _alive(self._rows, spans, moments)
        return [Peak(place + BEFORE, form) for place, form in self._most(rows)]

    def ordered_peaks(self, point: Point) -> tuple[list[Peak], Minimal]:
        """Of the order that is found at a point, and what was found there. Raises Unalike."""
        sized = [int(value_of(form, point)) for form in self.forms]
        storages = tuple(
            replace(each, nbytes=nbytes) for each, nbytes in zip(self.samples[0].storages, sized, strict=True)
        )
        found = minimal(self.operations, storages)
        shape = self._graph
        if _shape(graph(self.operations, storages)) != _shape(shape):
            raise Unalike(f"other gradients are summed in place at {told(point)}")
        node_of = {index: node for node, index in enumerate(shape.operations)}
        order = [node_of[index] for index in found.order if index in node_of]
        turn = {node: place for place, node in enumerate(order)}
        blocks = numpy.array([self._rows[block.storages[0]] for block in shape.blocks]).reshape(len(shape.blocks), -1)
        spans = []
        for block in shape.blocks:
            begins = 0 if block.maker == BEFORE else turn[block.maker]
            ends = max((turn[node] for node in block.users), default=BEFORE)
            spans.append((begins, len(order) if block.stays else ends + 1))
        rows = _alive(blocks, spans, len(order))
        return [Peak(shape.operations[order[place]], form) for place, form in self._most(rows)], found

    @cached_property
    def _graph(self) -> Graph:
        """The graph of all samples. Raises Unalike where they have several."""
        graphs = [graph(sample.operations, sample.storages) for sample in self.samples]
        for sample, other in zip(self.samples, graphs, strict=True):
            if _shape(other) != _shape(graphs[0]):
                raise Unalike(f"what has to come before what is another at {told(sample.point)}")
        return graphs[0]

    def _most(self, rows: Matrix) -> list[tuple[int, Form]]:
        """The rows of which one is the largest, by place."""
        _, firsts = numpy.unique(rows, axis=0, return_index=True)
        firsts.sort()
        chosen = [int(firsts[place]) for place in largest(self.basis, rows[firsts], self.least)]
        return [(place, self.basis.form(rows[place])) for place in chosen]


def peak_of(sample: Sample) -> int:
    """The eager peak of a sample."""
    return footprint(sample.operations, sample.storages).peak_bytes


def _lives(sample: Sample) -> list[tuple[int, int | None]]:
    return [(each.born_index, each.died_index) for each in settled(sample.operations, _numbers(sample.storages))]


def _alive(rows: Matrix, spans: Sequence[tuple[int, int]], moments: int) -> Matrix:
    """What is alive at each moment. spans: of each row, the first moment and the one after the last."""
    change = numpy.zeros((moments + 1, rows.shape[1]), dtype=numpy.int64)
    for row, (begins, ends) in zip(rows, spans, strict=True):
        if begins < ends:
            change[begins] += row
            change[ends] -= row
    return change[:-1].cumsum(axis=0)


def _numbers(storages: Iterable[Storage]) -> list[Storage]:
    return [each if each.nbytes is not None else replace(each, nbytes=0) for each in storages]


def _shape(found: Graph) -> tuple[object, ...]:
    """What two graphs share whose sizes alone differ."""
    return found.before, [(b.maker, b.users, b.stays, b.storages) for b in found.blocks]
