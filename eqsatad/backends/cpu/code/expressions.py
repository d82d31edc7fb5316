"""Expressions at a point of the loops: values, addresses, stores.

A point may stand for several neighbouring ones. Its `lane` axis varies along the lanes of a
vector, and axes of a tile differ from a shared base by a constant, so that all copies of a read
in a tile have one address computation and constant displacements. A value that does not depend
on the lane axis stays a scalar.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from eqsatad.backends.access import flat, harmless, natural
from eqsatad.backends.cpu.code import memory
from eqsatad.backends.cpu.code.loads import Loads
from eqsatad.backends.cpu.code.points import TRUE_LANE, Address, Local, Place, Point
from eqsatad.backends.cpu.code.scalars import (
    BYTES,
    COMPUTED,
    STORED,
    cast,
    constant,
    narrowed,
    operation,
    positive_division,
    whole_power,
)
from eqsatad.backends.cpu.code.tables import tabled
from eqsatad.backends.cpu.code.text import Value, Writer, number
from eqsatad.terms.linear import Linear
from eqsatad.terms.nodes import (
    Apply,
    Axis,
    Cast,
    Const,
    Expr,
    Read,
    Select,
    Size,
    Tensor,
    Var,
)
from eqsatad.terms.ops import AND, FLOORDIV, MOD, OR, POW, Op
from eqsatad.terms.ranges import interval
from eqsatad.terms.walk import postorder

# Powers by multiplications, and those of them that are rounded once, like `pow`.
WHOLE_POWERS = (-2, -1, 0, 1, 2, 3, 4)
EXACT_POWERS = (-1, 0, 1, 2)
# The largest index that is divided in 32 bits.
NARROW = 1 << 30


class Expressions:
    """Writes the values of expressions; each node once per point while a `scope` lasts."""

    def __init__(
        self,
        w: Writer,
        buffers: Mapping[Tensor, str],
        sizes: Mapping[str, str],
        roomy: frozenset[Tensor] = frozenset(),
        large: frozenset[Tensor] = frozenset(),
    ) -> None:
        self.w = w
        self.buffers = buffers
        self.sizes = sizes
        # Where a vector may be loaded that begins or ends beyond the buffer.
        self.roomy = roomy
        # What may be stored past the caches, and of that what vectors fit that are stored now.
        self.large = large
        self.streamed: Tensor | None = None
        # Vectors that a walk has at hand.
        self.loaded: dict[Read, Value] = {}
        self._loads = Loads(self)
        self.locals: dict[Var, Local] = {}
        # Numbers that were tested to lie between 0 and another one.
        self._digits: list[tuple[Expr, int]] = []
        self._scopes: list[dict[object, Value]] = []
        self._inside: dict[tuple[type[Expr], Expr], bool] = {}
        # Whether what is read was read before is hidden from LLVM.
        self._hides = False

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is written inside is forgotten outside, where it may not have been run."""
        self._scopes.append({})
        yield
        self._scopes.pop()

    @contextmanager
    def anew(self) -> Iterator[None]:
        """What is read inside is loaded there, whether it is at hand from before or not."""
        with self.scope():
            before, self._hides = self._hides, True
            yield
            self._hides = before

    @contextmanager
    def within(self, place: Expr, last: int) -> Iterator[None]:
        """Inside, ``place`` is a number from 0 to ``last``."""
        self._digits.append((place, last))
        yield
        self._digits.pop()

    def value(self, root: Expr, point: Point) -> Value:
        """The value of ``root``, of the type that its dtype is computed in."""
        stack = [root]
        while stack:
            node = stack[-1]
            if self._known(self._key(node, point)) is not None:
                stack.pop()
                continue
            needed = [n for n in self._first(node) if self._known(self._key(n, point)) is None]
            if needed:
                stack.extend(reversed(needed))
                continue
            stack.pop()
            self._scopes[-1][self._key(node, point)] = self._node(node, point)
        found = self._known(self._key(root, point))
        assert found is not None, "the walk ends when the root is known"
        return found

    def address(self, tensor: Tensor, indices: tuple[Expr, ...], point: Point) -> Address:
        """Where the element at ``indices`` is."""
        return self.at(tensor, flat(tensor, indices), point)

    def at(self, tensor: Tensor, form: Linear, point: Point) -> Address:
        """Where the element at the offset ``form`` is."""
        form, entry = self._looked_up(form, point)
        steady: list[tuple[int, Expr]] = []
        delta, stride = form.const, 0
        offsets: Value | None = None
        for coef, atom in sorted(form.terms, key=lambda term: self._depth(term[1], point)):
            if isinstance(atom, Axis):
                delta += coef * point.axes[atom].delta
                stride += coef * point.axes[atom].lane
                steady.append((coef, atom))
            elif (value := self.value(atom, point)).lanes:
                scaled = self.w.two("mul", value, number(coef, "i64"))
                offsets = scaled if offsets is None else self.w.two("add", offsets, scaled)
            else:
                steady.append((coef, atom))
        kind = STORED[tensor.dtype]
        # Under a mask the first lane may be one that is off, outside of the buffer.
        inside = point.mask is None
        offset = self._base(tuple(steady), point)
        if entry is not None:
            offset = self._plus(offset, 1, entry)
        base = self.w.address(self.buffers[tensor], kind, offset, inside=inside)
        if self._hides:
            base = self._hidden(base, (tensor, offset))
        base = self.w.address(base, kind, number(delta, "i64"), inside=inside)
        if offsets is not None and stride:
            offsets = self.w.two("add", offsets, self.w.counting(point.lanes, stride))
        return Address(base, stride, offsets)

    def _hidden(self, address: str, key: object) -> str:
        """``address`` as an unknown one, the same for all that have the ``key``."""
        if (found := self._known(key)) is None:
            found = self._scopes[-1][key] = Value(self.w.hidden(address), "ptr")
        return found.text

    def _looked_up(self, form: Linear, point: Point) -> tuple[Linear, Value | None]:
        """``form`` without what a table has of it, and the entry of the table, if there is one."""
        for place, last in self._digits:
            table = tabled(form, place, last)
            if table is None or (at := self.value(place, point)).lanes:
                continue
            address = self.w.address(self.w.module.table(table.entries), "i32", at)
            return table.rest, self.w.convert("sext", self.w.load("i32", 0, address, 4), "i64")
        return form, None

    def store(self, tensor: Tensor, indices: tuple[Expr, ...], value: Value, point: Point) -> None:
        """Stores ``value``, one per lane if the indices vary along the lanes."""
        dtype = tensor.dtype
        at = self.address(tensor, indices, point)
        raw = narrowed(self.w, value, dtype)
        if not at.stride and at.offsets is None:
            assert not raw.lanes, "lanes that differ are stored in one place"
            self.w.store(raw, at.base, BYTES[STORED[dtype]])
            return
        raw = self.w.wide(raw, point.lanes)
        if at.stride == 1 and at.offsets is None:
            if point.mask is None and tensor is self.streamed:
                self.w.stream(raw, at.base, raw.lanes * BYTES[STORED[dtype]])
            elif point.mask is None:
                self.w.store(raw, at.base, BYTES[STORED[dtype]])
            else:
                memory.masked_store(self.w, raw, at.base, point.mask)
            return
        offsets = at.offsets or self.w.counting(point.lanes, at.stride)
        memory.scatter(self.w, raw, at.base, offsets, point.on)

    def interleave(
        self,
        tensor: Tensor,
        indices: tuple[Expr, ...],
        values: tuple[Value, Value],
        point: Point,
    ) -> None:
        """Stores the lanes of two values alternately, from ``indices`` on."""
        at = self.address(tensor, indices, point)
        even, odd = (
            self.w.wide(narrowed(self.w, value, tensor.dtype), point.lanes) for value in values
        )
        memory.alternating_store(self.w, even, odd, at.base)

    def assign(self, var: Var, value: Value, point: Point) -> None:
        """Sets a local at this point of the tile."""
        if var not in self.locals:
            self.locals[var] = Local(COMPUTED[var.dtype], point.lanes, tuple(point.axes))
        local = self.locals[var]
        fresh = self._copy(local, point) not in local.slots
        slot = self.slot(local, point)
        if point.mask is not None and not fresh:
            before = self.w.get(slot, local.kind, local.lanes)
            value = self.w.select(point.mask, value, before)
        self.w.set(slot, self.w.wide(value, local.lanes))

    def _copy(self, local: Local, point: Point) -> tuple[int, ...]:
        return tuple(point.axes[axis].delta for axis in local.axes)

    def slot(self, local: Local, point: Point) -> str:
        """Where the copy of ``local`` at ``point`` is."""
        copy = self._copy(local, point)
        if copy not in local.slots:
            local.slots[copy] = self.w.slot(local.kind, local.lanes)
        return local.slots[copy]

    def _base(self, terms: tuple[tuple[int, Expr], ...], point: Point) -> Value:
        """The sum of ``terms`` with each axis at its base: shared by the copies of a tile."""
        parts = tuple(
            (coef, point.axes[atom].base if isinstance(atom, Axis) else self.value(atom, point))
            for coef, atom in terms
        )
        total = Value("0", "i64")
        for coef, value in parts:
            key = (total, coef, value)
            if (found := self._known(key)) is None:
                found = self._plus(total, coef, value)
                self._scopes[-1][key] = found
            total = found
        return total

    def _plus(self, total: Value, coef: int, value: Value) -> Value:
        if value.text == "0":
            return total
        scaled = value if coef == 1 else self.w.two("mul nsw", value, number(coef, "i64"))
        return scaled if total.text == "0" else self.w.two("add nsw", total, scaled)

    def _depth(self, atom: Expr, point: Point) -> int:
        order = list(point.axes)
        return max((order.index(axis) for axis in atom.free), default=-1)

    def _known(self, key: object) -> Value | None:
        for scope in reversed(self._scopes):
            if key in scope:
                return scope[key]
        return None

    def _key(self, node: Expr, point: Point) -> object:
        """Points that agree in it give ``node`` the same value.

        What is read holds only in the lanes of the mask that it was read under.
        """
        if self._mentions(Var, node):
            return (node, point.copy, point.mask)
        mask = point.mask if self._mentions(Read, node) else None
        return (node, tuple(point.axes[a].delta for a in sorted(node.free, key=_name)), mask)

    def _mentions(self, kind: type[Expr], node: Expr) -> bool:
        if (kind, node) not in self._inside:
            for each in postorder(node):
                inner = any(self._inside[kind, child] for child in each.children)
                self._inside[kind, each] = inner or isinstance(each, kind)
        return self._inside[kind, node]

    def _first(self, node: Expr) -> tuple[Expr, ...]:
        """What must be known before ``node``; what may stay undone is left to `_node`."""
        match node:
            case Read():
                return ()
            case Select(cond, then, other):
                return (cond,) if not (harmless(then) and harmless(other)) else node.children
            case Apply(op, (left, right)) if op in (AND, OR):
                return (left,) if not harmless(right) else (left, right)
        return node.children

    def _node(self, node: Expr, point: Point) -> Value:
        match node:
            case Const(value, dtype):
                return constant(value, dtype)
            case Size(name):
                return Value(self.sizes[name], "i64")
            case Axis():
                return self.axis(point.axes[node], point)
            case Var():
                local = self.locals[node]
                return self.w.get(self.slot(local, point), local.kind, local.lanes)
            case Read():
                return self._loads.load(node, point)
            case Cast(arg, dtype):
                return cast(self.w, self.value(arg, point), arg.dtype, dtype)
            case Select(cond, then, other):
                return self._select(cond, then, other, point)
        assert isinstance(node, Apply), "no Reduce is left in a loop program"
        return self._apply(node, point)

    def axis(self, place: Place, point: Point) -> Value:
        """The number that an axis at ``place`` is, in each lane."""
        base = place.base
        if place.delta:
            base = self.w.two("add nsw", base, number(place.delta, "i64"))
        if not place.lane:
            return base
        return self.w.two("add nsw", base, self.w.counting(point.lanes, place.lane))

    def _apply(self, node: Apply, point: Point) -> Value:
        op, args = node.op, node.args
        if op is AND and not harmless(args[1]):
            return self._select(args[0], args[1], Const(False, "bool"), point)
        if op is OR and not harmless(args[1]):
            return self._select(args[0], Const(True, "bool"), args[1], point)
        values = [self.value(arg, point) for arg in args]
        if op is POW and isinstance(exponent := args[1], Const):
            powers = WHOLE_POWERS if self.w.flags else EXACT_POWERS
            if exponent.value in powers:
                return whole_power(self.w, values[0], int(exponent.value))
        if op in (FLOORDIV, MOD) and node.dtype == "index":
            return self._divided(op, values, args)
        return operation(op, args[0].dtype)(self.w, *values)

    def _divided(self, op: Op, values: list[Value], args: tuple[Expr, ...]) -> Value:
        """A quotient or remainder of indices; those of vectors are narrow where they fit."""
        whole = natural(args[0])
        fits = all((high := interval(arg)[1]) is not None and high <= NARROW for arg in args)
        if not (whole and fits and values[0].lanes):
            return positive_division(self.w, op, values[0], values[1], whole)
        a, b = (self.w.convert("trunc", value, "i32") for value in values)
        return self.w.convert("zext", positive_division(self.w, op, a, b, whole), "i64")

    def _select(self, cond: Expr, then: Expr, other: Expr, point: Point) -> Value:
        test = self.value(cond, point)
        if harmless(then) and harmless(other):
            return self.w.select(test, self.value(then, point), self.value(other, point))
        if test.lanes:
            return self._blend(test, then, other, point)
        return self._branch(test, then, other, point)

    def _blend(self, test: Value, then: Expr, other: Expr, point: Point) -> Value:
        """Both sides, each read only in the lanes that choose it."""
        against = self.w.two("xor", test, TRUE_LANE)
        sides = []
        for mask, side in ((test, then), (against, other)):
            both = mask if point.mask is None else self.w.two("and", mask, point.mask)
            with self.scope():
                sides.append(self.value(side, point.under(both)))
        return self.w.select(test, *sides)

    def _branch(self, test: Value, then: Expr, other: Expr, point: Point) -> Value:
        yes, no, done = (self.w.fresh(stem) for stem in ("yes", "no", "join"))
        self.w.branch(test, yes, no)
        options = []
        for label, side in ((yes, then), (no, other)):
            self.w.begin(label)
            with self.scope(), self.w.condition():
                value = self.w.wide(self.value(side, point), point.lanes)
            options.append((self.w.label, value))
            self.w.jump(done)
        self.w.begin(done)
        return self.w.choose(options)


def _name(axis: Axis) -> str:
    return axis.key
