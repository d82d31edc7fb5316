"""Sums of products of unknown extents at the sizes that they might have: how are they best read?

Which axis vectors run along, and what is copied for it, is decided once for all sizes. `packing`
knows how where extents are numbers, so it is asked about an example.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from eqsatad.backends.cpu.rewrites.products import Products, products_of, rebuilt
from eqsatad.loops.nest import Assign, For, Store, replaced
from eqsatad.terms.linear import linear, normal
from eqsatad.terms.nodes import Const, Expr, Placeholder, Read, Size, Tensor
from eqsatad.terms.walk import postorder, substitute

# What a size is taken for, and what the side of an image is: windows move along it.
COMMON = 64
SIDE = 28

Sizes = Mapping[Expr, Expr]


def example(products: Products, sides: Collection[Expr]) -> Products:
    """``products`` with numbers for sizes, smaller ones for ``sides``; axes stay the same."""
    sizes: Sizes = {size: _number(size, sides) for size in _all(products)}
    reads: dict[Expr, Expr] = {read: _read(read, sizes) for read in products.operands}
    (update,) = replaced((products.update,), reads)
    assert isinstance(update, Assign), "replacing keeps statements"
    store = products.store
    indices = tuple(_at(index, sizes) for index in store.indices)
    made = replace(
        products,
        loops=tuple(_loop(loop, sizes) for loop in products.loops),
        sums=tuple(_loop(loop, sizes) for loop in products.sums),
        update=update,
        store=Store(_tensor(store.buffer, sizes), indices, store.value),
    )
    found = products_of(rebuilt(made, {}))
    assert found is not None, "numbers change nothing about the kind of a nest"
    return found


def _all(products: Products) -> Iterator[Size]:
    """Every size that loops or arrays depend on."""
    loops = (*products.loops, *products.sums)
    bounds = [bound for loop in loops for bound in (loop.start, loop.stop)]
    tensors = (products.store.buffer, *(read.tensor for read in products.operands))
    extents = [extent for tensor in tensors for extent in tensor.shape]
    places = [place for read in products.operands for place in read.indices]
    for node in postorder(*bounds, *extents, *places, *products.store.indices):
        if isinstance(node, Size):
            yield node


def sides_of(products: Products) -> frozenset[Expr]:
    """The sizes of what windows move along: places there are made of several axes, or strides."""
    store = products.store
    accesses = [(store.buffer, store.indices)]
    accesses += [(read.tensor, read.indices) for read in products.operands]
    return frozenset(
        node
        for tensor, indices in accesses
        for place, extent in zip(indices, tensor.shape, strict=True)
        if sum(abs(coef) for coef, atom in linear(place).terms if atom.free) > 1
        for node in postorder(extent)
        if isinstance(node, Size)
    )


def _number(size: Size, sides: Collection[Expr]) -> Expr:
    about = SIDE if size in sides else COMMON
    return Const(-(-about // size.multiple_of) * size.multiple_of, "index")


def _at(expr: Expr, sizes: Sizes) -> Expr:
    return normal(substitute(expr, sizes))


def _loop(loop: For, sizes: Sizes) -> For:
    return replace(loop, start=_at(loop.start, sizes), stop=_at(loop.stop, sizes))


def _tensor(tensor: Tensor, sizes: Sizes) -> Tensor:
    shape = tuple(_at(extent, sizes) for extent in tensor.shape)
    return Placeholder(tensor.name, shape, tensor.dtype)


def _read(read: Read, sizes: Sizes) -> Read:
    return Read(_tensor(read.tensor, sizes), tuple(_at(place, sizes) for place in read.indices))
