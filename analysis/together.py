"""The forms of sizes from few points at which all symbols change at once: two to fit, where others need many.

Most sizes are a number times a product of symbols, and of the sides that the table's own windows make of an image
(`analysis/roundings.py`): such a product is known by how its values relate at two points. Others are such a product and
a constant, or a product of sums that are sizes themselves (n² + 1 positions times a width). `derive_together` looks for
these and no others, at points that differ in every symbol, until each size has exactly one form that also holds at
points which none was fitted to. Where that is not so it gives None, and the longer way of `analysis/sampling.py` is
open: a form that is ambiguous here is not chosen, and a size of another form is not told as one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations, product
from math import gcd

from analysis.fitting import ONE, Atom, Form, Monomial, Point, Values, plus, scaled, times, value_of
from analysis.roundings import roundings
from analysis.sampling import CHECKS, Axis, NoSample, Sample, Sampler, Sizes, spread

FITTED = 2
"""Points that forms are fitted to, at first."""

MOST = 5
"""Points that forms are fitted to, at most."""

MOST_BESIDE = 4
"""Times that a symbol is in a sum, at most: as the gates of a cell are."""

WITH_A_SUM = 2
"""Symbols in a product that a sum is multiplied by, at most."""

FACTORS = 24
"""Sums that others may be multiples of, at most."""


def derive_together(sample_at: Sampler, axes: Sequence[Axis], fixed: Point, seen: Sequence[Form] = ()) -> Sizes | None:
    """Samples, of which all sizes have a form in the axes' symbols; None where they are not found this way.

    fixed: other symbols, which stay as they are. seen: forms of sizes elsewhere, of which these are
    thought to be multiples; then one point fewer has to confirm them.
    """
    turns, checks = spread(axes), CHECKS - bool(seen)
    base = {**{axis.symbol: axis.base for axis in axes}, **fixed}
    try:
        samples = [sample_at(base)]
        for fitted in range(FITTED, MOST + 1):
            while len(samples) < fitted + checks:
                samples.append(sample_at({**base, **next(turns)}))
                if samples[-1].structure != samples[0].structure:
                    return None
            sizes = Sizes(tuple(samples), fitted, Together(samples[:fitted], [axis.symbol for axis in axes], seen))
            if _complete(sizes):
                return sizes
    except NoSample:
        return None
    return None


def _complete(sizes: Sizes) -> bool:
    """Whether every size has a form that holds at the later points. A multiple of a sum is found after that sum."""
    left = sizes.columns
    while left:
        found = [(values, sizes.fitter.fit(values[: sizes.fitted])) for values in left]
        if any(form is not None and not sizes.holds(form, values) for values, form in found):
            return False
        unfound = [values for values, form in found if form is None]
        if len(unfound) == len(left):
            return False
        left = unfound
    return True


class Together:
    """Finds the form of values at points that differ in all symbols. Where two are possible, none is given."""

    def __init__(self, samples: Sequence[Sample], symbols: Sequence[str], seen: Sequence[Form] = ()) -> None:
        self._points = [sample.point for sample in samples]
        windows = {symbol: roundings(symbol, self._points[0][symbol], samples[0].operations) for symbol in symbols}
        self._symbols = symbols
        self._seen = _Multiples(self._points, seen)
        self._plain = _Multiples(self._points, _products(windows))
        self._factors: list[Form] = [form for forms in windows.values() for form in forms if ONE in form]
        self._short = [form for form in self._plain.forms if len(next(iter(form))) <= WITH_A_SUM]
        self._composed, self._joined = _Multiples(self._points, ()), 0
        self._found: dict[Values, Form] = {}

    def fit(self, values: Values) -> Form | None:
        """The one form through all values, one a point."""
        if values not in self._found:
            form = self._looked_for(values)
            if form is None:
                return None
            self._found[values] = form
        return self._found[values]

    def _looked_for(self, values: Values) -> Form | None:
        if len(set(values)) == 1:
            return {ONE: Fraction(values[0])} if values[0] else {}
        for among in self._ways():
            if forms := among(values):
                break
        if len(forms) != 1:
            return None
        if len(forms[0]) > 1 and len(self._factors) < FACTORS and forms[0] not in self._factors:
            self._factors.append(forms[0])
        return forms[0]

    def _ways(self) -> Iterator[Callable[[Values], list[Form]]]:
        """Where a form is looked for, the plainest first."""
        yield self._seen.through
        yield self._plain.through
        yield self._plain.beside_a_constant
        if len(self._points) > FITTED:
            yield self._sums.through
        yield self._multiples_of_sums().through

    @cached_property
    def _sums(self) -> _Multiples:
        return _Multiples(self._points, _sums(self._symbols))

    def _multiples_of_sums(self) -> _Multiples:
        while self._joined < len(self._factors):
            self._joined += 1
            factors, new = self._factors[: self._joined], self._factors[self._joined - 1]
            self._composed.add(times(new, form) for form in (*factors, *self._short))
        return self._composed


class _Multiples:
    """Forms by how their values at the points relate, so that a multiple of one is found at once."""

    def __init__(self, points: Sequence[Point], forms: Iterable[Form]) -> None:
        self.forms: list[Form] = []
        self._points = points
        self._by_ratio: dict[tuple[int, ...], list[Form]] = {}
        self._by_step: dict[tuple[int, ...], list[tuple[Form, Fraction]]] = {}
        self.add(forms)

    def add(self, forms: Iterable[Form]) -> None:
        """Know these forms, too."""
        points = self._points
        for form in forms:
            self.forms.append(form)
            values = [value_of(form, point) for point in points]
            key, size = _ratio(values)
            if size and (unit := scaled(form, 1 / size)) not in self._by_ratio.setdefault(key, []):
                self._by_ratio[key].append(unit)
            if len(points) > FITTED and ONE not in form:
                key, size = _ratio([value - values[0] for value in values[1:]])
                if size:
                    self._by_step.setdefault(key, []).append((scaled(form, 1 / size), values[0] / size))

    def through(self, values: Values) -> list[Form]:
        """The forms of which one multiple has these values, as that multiple."""
        key, size = _ratio(values)
        return [scaled(unit, size) for unit in self._by_ratio.get(key, ())]

    def beside_a_constant(self, values: Values) -> list[Form]:
        """The same, of a multiple and a constant; none where points are too few to tell."""
        key, size = _ratio([value - values[0] for value in values[1:]])
        return [
            plus((scaled(unit, size), {ONE: values[0] - first * size})) for unit, first in self._by_step.get(key, ())
        ]


def _ratio(values: Sequence[Fraction | int]) -> tuple[tuple[int, ...], Fraction]:
    """The least whole numbers that relate as these do, and what they are to be multiplied by."""
    whole = [int(value) for value in values]
    common = gcd(*whole) * (-1 if whole[0] < 0 else 1)
    return (tuple(value // common for value in whole), Fraction(common)) if common else (tuple(whole), Fraction(0))


def _products(windows: dict[str, list[Form]]) -> Iterator[Form]:
    """Every product of powers of the symbols' roundings, one rounding a symbol."""
    options: list[list[Monomial]] = []
    for forms in windows.values():
        atoms = dict.fromkeys(atom for form in forms for monomial in form for atom, _ in monomial)
        options.append([ONE, *(((atom, power),) for atom in atoms for power in (1, 2))])
    for parts in product(*options):
        yield {tuple(sorted(pair for part in parts for pair in part)): Fraction(1)}


def _sums(symbols: Sequence[str]) -> Iterator[Form]:
    """What is put side by side: sums of two or three symbols, each up to MOST_BESIDE times, without a constant."""
    for count in (2, 3):
        for chosen in combinations(symbols, count):
            for factors in product(range(1, MOST_BESIDE + 1), repeat=count):
                if gcd(*factors) == 1:
                    pairs = zip(chosen, factors, strict=True)
                    yield {((Atom(symbol), 1),): Fraction(factor) for symbol, factor in pairs}
