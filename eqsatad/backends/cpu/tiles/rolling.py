"""Sums over neighbouring rows, each of which is read once for all results that it is added to.

The gradient of a max pooling is, at each place, a sum over the windows around it. Row by row of
what is read, what a row adds to each of the rows of results around it goes to an accumulator for
that row; the oldest of these is stored and makes room for a new one. So a vector is loaded once
for all rows, and only what is stored, not what is read, depends on where the image ends. This is
the scatter order of a stencil (K. Stock et al., "A framework for enhancing data reuse via
associative reordering", PLDI 2014).
"""

from __future__ import annotations

from collections.abc import Iterator

from eqsatad.backends.cpu.rewrites.products import parts
from eqsatad.backends.cpu.tiles.tile import Rolling
from eqsatad.loops.nest import For, expressions_of, statements
from eqsatad.terms.linear import linear
from eqsatad.terms.nodes import Axis, Const, Expr, Read
from eqsatad.terms.ops import MAX, MIN, Op


def rolling(row: For, sums: For) -> Rolling | None:
    """How results along ``row`` are accumulated, if ``sums`` adds neighbouring rows to each.

    Its bounds then are numbers, or say of the row that is read, ``row + sums`` or ``row - sums``,
    where that begins and ends.
    """
    low, high = list(_ends(sums.start, MAX, row.axis)), list(_ends(sums.stop, MIN, row.axis))
    start, stop = linear(row.start), linear(row.stop)
    if None in (*low, *high) or start.terms or stop.terms:
        return None
    results = range(start.const, stop.const)
    found = _read(results, [each for each in low if each], [each for each in high if each])
    if found is None:
        return None
    step, trips, reading = found
    taps = tuple(sorted((-step * place, place) for place in trips))
    if not all(_moved(expr, row.axis, sums.axis, step, reading) for expr in _inside(sums)):
        return None
    if reading[0] + taps[0][0] > results[0] or reading[-1] + taps[-1][0] < results[-1]:
        return None
    return Rolling(row.axis, sums.axis, (reading.start, reading.stop), taps)


def _ends(bound: Expr, extreme: Op, row: Axis) -> Iterator[tuple[int, int] | None]:
    """The parts of a bound as ``coef * row + number``; None for any other."""
    for part in parts(bound, extreme):
        form = linear(part)
        yield None if form.without(row).terms else (form.coefficient(row), form.const)


def _read(
    results: range, low: list[tuple[int, int]], high: list[tuple[int, int]]
) -> tuple[int, range, range] | None:
    """Whether the row that is read rises with the tap (1) or falls (-1), all taps, and all rows."""
    steps = {-coef for coef, _ in (*low, *high) if coef}
    starts, stops = ([number for coef, number in ends if not coef] for ends in (low, high))
    if steps not in ({1}, {-1}) or not starts or not stops:
        return None
    (step,) = steps
    taps = range(max(starts), min(stops))
    if not results or not taps:
        return None
    # Of the row that is read, times `step`.
    places = [tap + step * row for tap in (taps[0], taps[-1]) for row in (results[0], results[-1])]
    first = max(min(places), *(number for coef, number in low if coef))
    last = min(max(places), *(number - 1 for coef, number in high if coef))
    if first > last:
        return None
    return step, taps, range(first, last + 1) if step > 0 else range(-last, 1 - first)


def _inside(loop: For) -> Iterator[Expr]:
    for each in statements(loop.body):
        yield from expressions_of(each)


def _moved(expr: Expr, row: Axis, tap: Axis, step: int, reading: range) -> bool:
    """Whether ``expr`` only depends on ``row`` where it reads one that is inside of its array."""
    if row not in expr.free:
        return True
    if not isinstance(expr, Read):
        return expr is not row and all(
            _moved(each, row, tap, step, reading) for each in expr.children
        )
    return all(
        row not in index.free or _inside_of(index, extent, row, tap, step, reading)
        for index, extent in zip(expr.indices, expr.tensor.shape, strict=True)
    )


def _inside_of(index: Expr, extent: Expr, row: Axis, tap: Axis, step: int, reading: range) -> bool:
    """Whether ``index`` is a multiple of the row that is read, which is inside of ``extent``."""
    form = linear(index)
    coef = form.coefficient(row)
    if form.without(row).without(tap).terms or form.coefficient(tap) != step * coef:
        return False
    ends = [coef * place + form.const for place in (reading[0], reading[-1])]
    return isinstance(extent, Const) and min(ends) >= 0 and max(ends) < extent.value
