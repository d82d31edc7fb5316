"""Nodes of the term language: immutable, interned, and never simplified here.

Building a node twice gives the same object, so ``is`` is equality. Facts that every pass asks
for (``dtype``, ``free``, ``key``) are worked out once, when the node is built, from its children.
Constructors check; they do not rewrite. The meaning of each node is `terms.evaluate`.

Index expressions are mathematical integers and have the dtype ``"index"``; conditions have
``"bool"``; everything else is data of a numpy dtype.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Never, Self
from weakref import WeakValueDictionary

from eqsatad.errors import (
    ArityError,
    DtypeError,
    IndexCountError,
    OutOfBoundsError,
    ShapeError,
    UnboundIndexError,
)
from eqsatad.terms.ops import (
    ABS,
    ADD,
    AND,
    DIV,
    EQ,
    FLOORDIV,
    GE,
    GT,
    LE,
    LT,
    MOD,
    MUL,
    NE,
    NEG,
    NOT,
    OR,
    POW,
    SUB,
    Op,
)
from eqsatad.terms.origin import origin

if TYPE_CHECKING:
    from eqsatad.terms.coerce import Operand

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32")
DTYPES = (*FLOATS, *INTEGERS, "bool", "index")

# Separates the name of an axis, as it was given, from what makes it unique in the process.
MARKER = "'"


LITERALS = frozenset((float, bool, int))


class Interned(type):
    """``cls(*fields)`` gives the live node with those fields, or makes it."""

    _live: ClassVar[WeakValueDictionary[tuple[Any, ...], Any]] = WeakValueDictionary()
    _making: ClassVar[Lock] = Lock()

    def __call__(cls, *values: Any, **named: Any) -> Any:
        if named or len(values) < len(cls.__dataclass_fields__):  # type: ignore[attr-defined]
            values = tuple(
                values[n] if n < len(values) else named.get(field.name, field.default)
                for n, field in enumerate(fields(cls))  # type: ignore[arg-type]
            )
        # 1 == 1.0 == True and 0.0 == -0.0 as dictionary keys, so constants are keyed by spelling.
        key = (cls, *[repr(v) if type(v) in LITERALS else v for v in values])
        if (node := Interned._live.get(key)) is None:
            made = super().__call__(*values)
            # Another thread may have made it meanwhile; the first one stays the only one.
            with Interned._making:
                node = Interned._live.setdefault(key, made)
        return node


def digest(*parts: object) -> str:
    """A short name for ``parts`` that is the same in every run."""
    return blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).hexdigest()


class Term(metaclass=Interned):
    """Anything interned: expressions, tensors, combiners."""

    key: str

    def _settle(self, **facts: object) -> None:
        for name, value in facts.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        from eqsatad.terms.show import brief

        return brief(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles go through the constructor, so that they stay interned.
        return type(self), tuple(getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Expr(Term):
    """A scalar that depends on some free axes.

    Operators build `Apply` nodes over operands brought to one dtype (`terms.coerce`). ``==``
    compares objects; the condition that two values are equal is ``a.equal(b)``.
    """

    dtype: str
    free: frozenset[Axis]

    @property
    def children(self) -> tuple[Expr, ...]:
        return ()

    def __add__(self, other: Operand) -> Expr:
        return _apply(ADD, self, other)

    def __radd__(self, other: Operand) -> Expr:
        return _apply(ADD, other, self)

    def __sub__(self, other: Operand) -> Expr:
        return _apply(SUB, self, other)

    def __rsub__(self, other: Operand) -> Expr:
        return _apply(SUB, other, self)

    def __mul__(self, other: Operand) -> Expr:
        return _apply(MUL, self, other)

    def __rmul__(self, other: Operand) -> Expr:
        return _apply(MUL, other, self)

    def __truediv__(self, other: Operand) -> Expr:
        return _apply(DIV, self, other)

    def __rtruediv__(self, other: Operand) -> Expr:
        return _apply(DIV, other, self)

    def __floordiv__(self, other: Operand) -> Expr:
        return _apply(FLOORDIV, self, other)

    def __rfloordiv__(self, other: Operand) -> Expr:
        return _apply(FLOORDIV, other, self)

    def __mod__(self, other: Operand) -> Expr:
        return _apply(MOD, self, other)

    def __rmod__(self, other: Operand) -> Expr:
        return _apply(MOD, other, self)

    def __pow__(self, other: Operand) -> Expr:
        return _apply(POW, self, other)

    def __rpow__(self, other: Operand) -> Expr:
        return _apply(POW, other, self)

    def __neg__(self) -> Expr:
        return _apply(NEG, self)

    def __pos__(self) -> Expr:
        return self

    def __abs__(self) -> Expr:
        return _apply(ABS, self)

    def __lt__(self, other: Operand) -> Expr:
        return _apply(LT, self, other)

    def __le__(self, other: Operand) -> Expr:
        return _apply(LE, self, other)

    def __gt__(self, other: Operand) -> Expr:
        return _apply(GT, self, other)

    def __ge__(self, other: Operand) -> Expr:
        return _apply(GE, self, other)

    def equal(self, other: Operand) -> Expr:
        """The condition that the two values are equal."""
        return _apply(EQ, self, other)

    def differs(self, other: Operand) -> Expr:
        """The condition that the two values differ."""
        return _apply(NE, self, other)

    def __and__(self, other: Operand) -> Expr:
        return _apply(AND, self, other)

    def __rand__(self, other: Operand) -> Expr:
        return _apply(AND, other, self)

    def __or__(self, other: Operand) -> Expr:
        return _apply(OR, self, other)

    def __ror__(self, other: Operand) -> Expr:
        return _apply(OR, other, self)

    def __invert__(self) -> Expr:
        return _apply(NOT, self)

    def __bool__(self) -> bool:
        raise DtypeError(
            f"the value of {self!r} is known only when a kernel runs, so Python cannot branch on "
            "it. Use select(condition, a, b), & | ~ for and, or, not, and split a < b < c into "
            "(a < b) & (b < c)."
        )

    def __iter__(self) -> Iterator[Expr]:
        raise DtypeError(f"{self!r} is a scalar and cannot be iterated over or unpacked.")


def _apply(op: Op, *operands: Operand) -> Expr:
    from eqsatad.terms.coerce import apply

    return apply(op, *operands)


def _known(dtype: str) -> None:
    if dtype not in DTYPES:
        raise DtypeError(f"unknown dtype {dtype!r}; available: {', '.join(DTYPES)}")


def _union(children: tuple[Expr, ...]) -> frozenset[Axis]:
    return frozenset[Axis]().union(*(child.free for child in children))


@dataclass(frozen=True, eq=False, repr=False)
class Const(Expr):
    """A literal of one dtype; build it with `builders.const`, which converts the value."""

    value: Any
    dtype: str

    def __post_init__(self) -> None:
        _known(self.dtype)
        held = float if self.dtype in FLOATS else bool if self.dtype == "bool" else int
        if type(self.value) is not held:
            raise DtypeError(
                f"a literal of {self.dtype} holds a Python {held.__name__}; found {self.value!r}. "
                "Build it with const(value, dtype)."
            )
        self._settle(free=frozenset(), key=f"{self.value!r}:{self.dtype}")


@dataclass(frozen=True, eq=False, repr=False)
class Size(Expr):
    """A symbolic extent: an integer that is known when a kernel is called.

    It is promised to be at least ``minimum`` and a multiple of ``multiple_of``.
    """

    name: str
    minimum: int = 1
    multiple_of: int = 1

    def __post_init__(self) -> None:
        if self.multiple_of < 1 or self.minimum < 1:
            raise ShapeError(
                f"size {self.name} must be at least 1 and a multiple of at least 1; found "
                f"minimum={self.minimum} and multiple_of={self.multiple_of}."
            )
        # The least multiple that is large enough is as good a bound.
        least = -(-self.minimum // self.multiple_of) * self.multiple_of
        promised = "" if least == 1 else f":{least}:{self.multiple_of}"
        self._settle(dtype="index", free=frozenset(), key=f"size:{self.name}{promised}")

    def objection(self, number: int) -> str | None:
        """What is wrong with ``number`` as the value of this size; None if nothing is."""
        if number < self.minimum:
            promised = "it is promised to be" if self.minimum > 1 else "a symbolic size is"
            return f"size {self.name} is {number}, but {promised} at least {self.minimum}"
        if number % self.multiple_of:
            return (
                f"size {self.name} is {number}, but it is promised to be a multiple of "
                f"{self.multiple_of}"
            )
        return None


@dataclass(frozen=True, eq=False, repr=False)
class Axis(Expr):
    """A loop variable over ``range(extent)``; exactly one binder of a stage owns it."""

    name: str
    extent: Expr

    def __post_init__(self) -> None:
        if self.extent.dtype != "index" or self.extent.free:
            raise DtypeError(f"the extent of axis {self.name} must be an integer or a size")
        self._settle(dtype="index", free=frozenset((self,)), key=f"{self.name}<{self.extent.key}")


@dataclass(frozen=True, eq=False, repr=False)
class Var(Expr):
    """A named scalar: an operand of a user combiner, or a local of a loop nest."""

    name: str
    dtype: str

    def __post_init__(self) -> None:
        _known(self.dtype)
        self._settle(free=frozenset(), key=f"var:{self.name}:{self.dtype}")


@dataclass(frozen=True, eq=False, repr=False)
class Apply(Expr):
    """A scalar operation on scalars of one dtype: ``exp(x)``, ``i // 2``, ``x < y``."""

    op: Op
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if len(self.args) != self.op.arity:
            raise ArityError(f"{self.op.name} takes {self.op.arity} operands, got {len(self.args)}")
        found = tuple(arg.dtype for arg in self.args)
        if len(set(found)) > 1 or found[0] not in OPERANDS[self.op.kind]:
            wanted = ", ".join(OPERANDS[self.op.kind])
            raise DtypeError(
                f"{self.op.name} takes operands of one dtype out of {wanted}; "
                f"got {', '.join(found)}"
            )
        boolean = self.op.kind in ("compare", "logic")
        self._settle(
            dtype="bool" if boolean else found[0],
            free=_union(self.args),
            key=digest(self.op.name, *(arg.key for arg in self.args)),
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args


OPERANDS: dict[str, tuple[str, ...]] = {
    "arith": (*FLOATS, *INTEGERS, "index"),
    "integer": (*INTEGERS, "index"),
    "function": FLOATS,
    "compare": (*FLOATS, *INTEGERS, "index", "bool"),
    "logic": ("bool",),
}


@dataclass(frozen=True, eq=False, repr=False)
class Cast(Expr):
    """``arg`` converted to ``dtype``; to ``"index"`` it makes a data-dependent index."""

    arg: Expr
    dtype: str

    def __post_init__(self) -> None:
        _known(self.dtype)
        self._settle(free=self.arg.free, key=digest("cast", self.dtype, self.arg.key))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.arg,)


@dataclass(frozen=True, eq=False, repr=False)
class Select(Expr):
    """``then`` where ``cond`` holds, else ``other``; only the chosen side is evaluated."""

    cond: Expr
    then: Expr
    other: Expr

    def __post_init__(self) -> None:
        if self.cond.dtype != "bool" or self.then.dtype != self.other.dtype:
            raise DtypeError(
                f"select takes a condition and two values of one dtype; got {self.cond.dtype}, "
                f"{self.then.dtype}, {self.other.dtype}"
            )
        self._settle(
            dtype=self.then.dtype,
            free=_union(self.children),
            key=digest("select", *(child.key for child in self.children)),
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.then, self.other)


@dataclass(frozen=True, eq=False, repr=False)
class Read(Expr):
    """The element of ``tensor`` at ``indices``."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.tensor.shape):
            raise IndexCountError(
                f"{self.tensor.name}{self.tensor.where_built} has {len(self.tensor.shape)} "
                f"dimensions ({', '.join(map(repr, self.tensor.shape))}) and is read at "
                f"({', '.join(map(repr, self.indices))}). Give one index per dimension."
            )
        for index in self.indices:
            if index.dtype != "index":
                raise DtypeError(f"an index of {self.tensor.name} has dtype {index.dtype}")
        self._settle(
            dtype=self.tensor.dtype,
            free=_union(self.indices),
            key=digest("read", self.tensor.key, *(index.key for index in self.indices)),
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.indices


@dataclass(frozen=True, eq=False, repr=False)
class Combiner(Term):
    """How a reduction combines two values; a user's own carries its formula.

    ``left`` and ``right`` are the operands in ``result``; ``identity`` is neutral. The named
    ones in `COMBINERS` have no formula: every pass knows them.
    """

    name: str
    left: Var | None = None
    right: Var | None = None
    result: Expr | None = None
    identity: Expr | None = None

    def __post_init__(self) -> None:
        parts = (self.left, self.right, self.result, self.identity)
        self._settle(
            key=digest("combiner", self.name, *("" if part is None else part.key for part in parts))
        )


SUM, PROD, MAXIMUM, MINIMUM, ARGMAX, ARGMIN, ANY, ALL = (
    Combiner(name) for name in ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all")
)
COMBINERS: dict[str, Combiner] = {
    combiner.name: combiner for combiner in (SUM, PROD, MAXIMUM, MINIMUM, ARGMAX, ARGMIN, ANY, ALL)
}


@dataclass(frozen=True, eq=False, repr=False)
class Reduce(Expr):
    """``body`` combined over every point of ``axes`` at which ``cond`` holds.

    No point gives the identity (for argmax and argmin: 0). argmax and argmin give the row-major
    position within ``axes`` of the first best point, as int64.
    """

    combiner: Combiner
    axes: tuple[Axis, ...]
    cond: Expr
    body: Expr

    def __post_init__(self) -> None:
        if self.cond.dtype != "bool":
            raise DtypeError(f"the condition of a {self.combiner.name} has dtype {self.cond.dtype}")
        if len(set(self.axes)) != len(self.axes):
            raise UnboundIndexError(f"a {self.combiner.name} binds an axis twice")
        arg = self.combiner.name in ("argmax", "argmin")
        inner = (self.cond, self.body)
        self._settle(
            dtype="int64" if arg else self.body.dtype,
            free=_union(inner) - frozenset(self.axes),
            key=digest(
                "reduce",
                self.combiner.key,
                *(axis.key for axis in self.axes),
                *(child.key for child in inner),
            ),
        )

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, self.body)


class Tensor(Term):
    """A named array: a placeholder or a stage.

    ``built`` is the line of the user's code that built it, for messages; it is not part of what
    the tensor is, so of several equal ones it is the first.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: str
    built: str

    @property
    def where_built(self) -> str:
        """What a message says after the name; empty if the line is not known."""
        return f" (built at {self.built})" if self.built else ""

    def __getitem__(self, indices: Operand | tuple[Operand, ...]) -> Expr:
        """The element at ``indices``: integers, index expressions or integer data."""
        from eqsatad.terms.coerce import as_index

        given = indices if isinstance(indices, tuple) else (indices,)
        exprs = tuple(as_index(index, self.name) for index in given)
        for place, (index, extent) in enumerate(zip(exprs, self.shape, strict=False)):
            self._inside(place, index, extent)
        return Read(self, exprs)

    def get(self, *indices: Operand, outside: Operand = 0.0) -> Expr:
        """The element at ``indices``, or ``outside`` where they lie outside the tensor."""
        from eqsatad.terms.coerce import all_of, as_index, lift

        exprs = tuple(as_index(index, self.name) for index in indices)
        read = Read(self, exprs)
        inside = [
            cond
            for index, extent in zip(exprs, self.shape, strict=True)
            for cond in (Apply(GE, (index, Const(0, "index"))), Apply(LT, (index, extent)))
        ]
        return Select(all_of(*inside), read, lift(outside, self.dtype)) if inside else read

    def _inside(self, place: int, index: Expr, extent: Expr) -> None:
        if not isinstance(index, Const):
            return
        if index.value < 0 or (isinstance(extent, Const) and index.value >= extent.value):
            raise OutOfBoundsError(
                f"{self.name}{self.where_built} is read at {index!r} in dimension {place}, which "
                f"has extent {extent!r}. Indices start at 0 and do not wrap; use "
                "get(..., outside=) for a border value."
            )

    def __iter__(self) -> Never:
        raise DtypeError(
            f"{self.name} is symbolic and cannot be iterated over or unpacked. Read its elements "
            "with indices."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Placeholder(Tensor):
    """An input array."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES or self.dtype == "index":
            raise DtypeError(f"placeholder {self.name} cannot have dtype {self.dtype}")
        self._settle(
            built=origin(),
            key=digest("placeholder", self.name, self.dtype, *(size.key for size in self.shape)),
        )


@dataclass(frozen=True, eq=False, repr=False)
class Scatter(Term):
    """For all points of ``axes`` where ``cond`` holds: add ``value`` at ``indices``."""

    axes: tuple[Axis, ...]
    cond: Expr
    indices: tuple[Expr, ...]
    value: Expr

    def __post_init__(self) -> None:
        parts = (*self.axes, self.cond, *self.indices, self.value)
        self._settle(key=digest("scatter", *(part.key for part in parts)))

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.cond, *self.indices, self.value)


@dataclass(frozen=True, eq=False, repr=False)
class Stage(Tensor):
    """A computed tensor: ``body`` at every point of ``axes``, plus what ``scatters`` add."""

    name: str
    axes: tuple[Axis, ...]
    body: Expr
    scatters: tuple[Scatter, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.axes)) != len(self.axes):
            raise UnboundIndexError(f"{self.name} has an output axis twice")
        if self.body.dtype == "index":
            raise DtypeError(f"{self.name} holds indices; cast its body to int64 or a float")
        self._bound(self.body, self.axes)
        for scatter in self.scatters:
            self._fits(scatter)
        self._settle(
            built=origin(),
            shape=tuple(axis.extent for axis in self.axes),
            dtype=self.body.dtype,
            key=digest(
                "stage",
                self.name,
                *(axis.key for axis in self.axes),
                self.body.key,
                *(scatter.key for scatter in self.scatters),
            ),
        )

    def _bound(self, body: Expr, axes: tuple[Axis, ...]) -> None:
        from eqsatad.terms.show import explained

        if stray := sorted(body.free - frozenset(axes), key=lambda axis: axis.name):
            bound = ", ".join(map(repr, axes)) or "none"
            raise UnboundIndexError(
                explained(
                    f"index {stray[0]!r} of {self.name} is bound neither by its axes ({bound}) "
                    "nor by a reduction:",
                    body,
                    stray[0],
                    f"Reduce over {stray[0]!r}, or use a bound index.",
                )
            )

    def _fits(self, scatter: Scatter) -> None:
        for part in scatter.children:
            self._bound(part, scatter.axes)
        found = tuple(index.dtype for index in scatter.indices)
        if found != ("index",) * len(self.axes) or scatter.value.dtype != self.body.dtype:
            raise DtypeError(
                f"{self.name} has {len(self.axes)} dimensions of {self.body.dtype}; a scatter adds "
                f"{scatter.value.dtype} at indices of dtypes ({', '.join(found)})"
            )

    @property
    def roots(self) -> tuple[Expr, ...]:
        """Every expression of the stage."""
        return (self.body, *(child for scatter in self.scatters for child in scatter.children))


TRUE = Const(True, "bool")
FALSE = Const(False, "bool")
