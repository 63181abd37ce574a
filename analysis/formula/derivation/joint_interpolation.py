"""The forms of sizes from few points at which all symbols change at once: two to fit, where others need many.

Most sizes are a number times a product of symbols, and of the sides that the table's own windows make of an image
(`analysis/formula/derivation/rounding.py`): such a product is known by how its values relate at two points. Others are
such a product and a constant, or a product of sums that are sizes themselves (n² + 1 positions times a width).
`derive_joint` looks for these and no others, at points that differ in every symbol, until each size has exactly one
form that also holds at points which none was fitted to. Where that is not so it gives None, and the longer way of
`analysis/formula/derivation/sampling.py` is open: a form that is ambiguous here is not chosen, and a size of another
form is not given as one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations, islice, product
from math import gcd
from operator import mul

from analysis.formula.derivation.interpolate import (
    ONE,
    Atom,
    Form,
    Monomial,
    Point,
    Values,
    number_of,
    plus,
    scaled,
    times,
)
from analysis.formula.derivation.rounding import roundings
from analysis.formula.derivation.sampling import CHECKS, Axis, NoSample, Sampler, Sizes, SizeSample, spread

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


def derive_joint(
    sample_at: Sampler,
    axes: Sequence[Axis],
    fixed: Point,
    seen: Sequence[Form] = (),
    checks: int = CHECKS,
    skipped: int = 0,
) -> Sizes | None:
    """Samples, of which all sizes have a form in the axes' symbols; None where they are not found this way.

    fixed: other symbols, which stay as they are. seen: forms of sizes elsewhere, of which these are thought to be
    multiples. checks: points that confirm the forms. skipped: points of `spread` that are left out, from the first.
    """
    turns = islice(spread(axes), skipped, None)
    base = {**{axis.symbol: axis.base for axis in axes}, **fixed}
    try:
        samples = [sample_at(base)]
        for fitted in range(FITTED, MOST + 1):
            while len(samples) < fitted + checks:
                samples.append(sample_at({**base, **next(turns)}))
                if samples[-1].structure != samples[0].structure:
                    return None
            sizes = Sizes(tuple(samples), fitted, JointFit(samples[:fitted], [axis.symbol for axis in axes], seen))
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


class JointFit:
    """Finds the form of values at points that differ in all symbols. Where two are possible, none is given."""

    def __init__(self, samples: Sequence[SizeSample], symbols: Sequence[str], seen: Sequence[Form] = ()) -> None:
        self._points = [sample.point for sample in samples]
        self._operations, self._symbols = samples[0].operations, symbols
        self._seen = _Multiples(self._points, seen)
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
        yield self._plain.forms_beside_constant
        if len(self._points) > FITTED:
            yield self._sums.through
        yield self._multiples_of_sums().through

    @cached_property
    def _windows(self) -> dict[str, list[Form]]:
        """Symbol → what the table's windows make of it."""
        first = self._points[0]
        return {symbol: roundings(symbol, first[symbol], self._operations) for symbol in self._symbols}

    @cached_property
    def _factors(self) -> list[Form]:
        """Sums that others may be multiples of: those of the windows, and those that were found."""
        return [form for forms in self._windows.values() for form in forms if ONE in form]

    @cached_property
    def _products(self) -> list[tuple[Monomial, list[int]]]:
        return _products(self._windows, self._points)

    @cached_property
    def _plain(self) -> _Multiples:
        found = _Multiples(self._points, ())
        found.add(self._products)
        return found

    @cached_property
    def _sums(self) -> _Multiples:
        return _Multiples(self._points, _sums(self._symbols))

    @cached_property
    def _short(self) -> list[tuple[Form, list[int]]]:
        return [(_form(product), values) for product, values in self._products if len(product) <= WITH_A_SUM]

    def _at_points(self, form: Form) -> list[int]:
        return [int(number_of(form, point)) for point in self._points]

    def _multiples_of_sums(self) -> _Multiples:
        while self._joined < len(self._factors):
            self._joined += 1
            factors = [(form, self._at_points(form)) for form in self._factors[: self._joined]]
            new, own = factors[-1]
            self._composed.add(
                (times(new, form), list(map(mul, own, values))) for form, values in (*factors, *self._short)
            )
        return self._composed


class _Multiples:
    """Forms by how their values at the points relate, so that a multiple of one is found at once."""

    def __init__(self, points: Sequence[Point], forms: Iterable[Form]) -> None:
        self._points = points
        self._values: list[tuple[Form | Monomial, Sequence[int]]] = []
        self._by_ratio: dict[tuple[int, ...], list[tuple[Form | Monomial, int]]] = {}
        self._stepped = 0
        self._by_step: dict[tuple[int, ...], list[tuple[Form | Monomial, int, int]]] = {}
        self.add((form, [int(number_of(form, point)) for point in points]) for form in forms)

    def add(self, forms: Iterable[tuple[Form | Monomial, Sequence[int]]]) -> None:
        """Know these forms, too, each with its values at the points; a monomial is a form, too."""
        for form, values in forms:
            self._values.append((form, values))
            key, size = _ratio(values)
            if size:
                self._by_ratio.setdefault(key, []).append((form, size))

    def through(self, values: Values) -> list[Form]:
        """The forms of which one multiple has these values, as that multiple."""
        key, size = _ratio(values)
        found: list[Form] = []
        for form, own in self._by_ratio.get(key, ()):
            multiple = scaled(_form(form), Fraction(size, own))
            if multiple not in found:
                found.append(multiple)
        return found

    def forms_beside_constant(self, values: Values) -> list[Form]:
        """The same, of a multiple and a constant; none where points are too few to tell."""
        if len(values) <= FITTED:
            return []
        for form, own_values in self._values[self._stepped :]:
            self._stepped += 1
            key, size = _ratio([value - own_values[0] for value in own_values[1:]])
            if size and ONE not in _form(form):
                self._by_step.setdefault(key, []).append((form, size, own_values[0]))
        key, size = _ratio([value - values[0] for value in values[1:]])
        return [
            plus((scaled(_form(form), Fraction(size, own)), {ONE: values[0] - Fraction(first * size, own)}))
            for form, own, first in self._by_step.get(key, ())
        ]


def _form(known: Form | Monomial) -> Form:
    return {known: Fraction(1)} if isinstance(known, tuple) else known


def _ratio(values: Sequence[int]) -> tuple[tuple[int, ...], int]:
    """The least whole numbers that relate as these do, and what they are to be multiplied by."""
    common = gcd(*values) * (-1 if values[0] < 0 else 1)
    return (tuple([value // common for value in values]), common) if common else (tuple(values), 0)


def _products(windows: Mapping[str, Sequence[Form]], points: Sequence[Point]) -> list[tuple[Monomial, list[int]]]:
    """Every product of powers of the symbols' roundings, one rounding a symbol, with its values at the points."""
    found: list[tuple[Monomial, list[int]]] = [(ONE, [1] * len(points))]
    for symbol in sorted(windows):
        atoms = dict.fromkeys(atom for form in windows[symbol] for monomial in form for atom, _ in monomial)
        factors = [
            ((atom, power), [atom(point[symbol]) ** power for point in points]) for atom in atoms for power in (1, 2)
        ]
        found += [
            ((*monomial, pair), list(map(mul, values, own))) for monomial, values in found for pair, own in factors
        ]
    return found


def _sums(symbols: Sequence[str]) -> Iterator[Form]:
    """What is put side by side: sums of two or three symbols, each up to MOST_BESIDE times, without a constant."""
    for count in (2, 3):
        for chosen in combinations(symbols, count):
            for factors in product(range(1, MOST_BESIDE + 1), repeat=count):
                if gcd(*factors) == 1:
                    pairs = zip(chosen, factors, strict=True)
                    yield {((Atom(symbol), 1),): Fraction(factor) for symbol, factor in pairs}
