"""Kernels: a compiled loop program, called with arrays.

Everything that is the same for all targets is here: binding names, checking dtypes and shapes,
working out symbolic sizes, making results and filling ``out=``. A backend only supplies `Launch`,
which gets contiguous arrays in the order of the program and may be called by several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy import may_share_memory

from eqsatad.backends.alike import inputs_alike
from eqsatad.backends.extents import deduce
from eqsatad.backends.fresh import Maker, maker
from eqsatad.backends.slots import (
    Slot,
    array_of,
    check_apart,
    check_shape,
    destination,
    stored_in,
)
from eqsatad.backends.storage import STORAGE, Array, from_bits, to_bits
from eqsatad.errors import ArgumentError
from eqsatad.loops.nest import LoopProgram

if TYPE_CHECKING:
    from eqsatad.backends.steps import KernelReport

Call: TypeAlias = Callable[[], None]


class Launch(Protocol):
    """What a backend supplies: a run on contiguous arrays in the order of the program."""

    def __call__(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int], /
    ) -> None: ...


Result: TypeAlias = tuple[tuple[int, ...], np.dtype[np.generic], Maker]
# The sizes of a call, and the shapes and dtypes of its results with what makes them; the same with
# its arrays before.
Form: TypeAlias = tuple[Sequence[int], Sequence[Result]]
Plain: TypeAlias = tuple[Sequence[Array], Sequence[int], Sequence[Result]]
# Of how many forms of calls a kernel keeps what it found out.
FORMS = 64


class Prepared:
    """A call with its arguments in place: ``call()`` fills and returns ``call.outputs``."""

    def __init__(
        self,
        launch: Launch,
        inputs: Sequence[Array],
        outputs: list[Array],
        sizes: Sequence[int],
    ) -> None:
        self.outputs = outputs
        prepared = getattr(launch, "prepared", None)
        self._run: Call = (
            partial(launch, inputs, outputs, sizes)
            if prepared is None
            else prepared(inputs, outputs, sizes)
        )

    def __call__(self) -> list[Array]:
        self._run()
        return self.outputs


class Kernel:
    """A compiled program: ``kernel(*arrays, out=None, **named)`` gives its outputs in order.

    Arrays are given by position, in the order of ``inputs``, or by name; symbolic sizes that no
    input shape tells are given by name. Safe to call from several threads.
    """

    def __init__(
        self,
        loops: LoopProgram,
        *,
        target: str,
        source: str,
        launch: Launch,
        alike: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.loops = loops
        self.target = target
        self.source = source
        self.inputs = tuple(tensor.name for tensor in loops.inputs)
        self.outputs = tuple(tensor.name for tensor in loops.outputs)
        self.sizes = tuple(size.name for size in loops.sizes)
        self.launch = launch
        self._takes = [Slot.of(tensor) for tensor in loops.inputs]
        self._gives = [Slot.of(tensor) for tensor in loops.outputs]
        self.alike = inputs_alike(loops) if alike is None else alike
        self._wanted = self._signature()
        self._copied: dict[str, str] = {}
        # Sizes and shapes of results by what a call gives; arrays of bfloat16 may need conversion.
        self._direct = all(slot.dtype != "bfloat16" for slot in (*self._takes, *self._gives))
        self._forms: dict[tuple[object, ...], Form] = {}
        if not self.sizes:
            self._note((), {}, {})

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth knowing: remarks of the lowering, and arguments that were copied."""
        return (*self.loops.notes, *(self._copied[name] for name in sorted(self._copied)))

    def __repr__(self) -> str:
        given = ", ".join((*self.inputs, *self.sizes))
        return f"<Kernel {self.target}: {given} -> {', '.join(self.outputs)}>"

    def __call__(self, *arrays: object, out: object = None, **named: object) -> list[Array]:
        """The outputs at ``arrays``, in order; written into ``out`` when it is given."""
        plain = self._plain(arrays, named)
        if plain is not None and (filled := self._filled(out, plain)) is not None:
            self.launch(plain[0], filled, plain[1])
            return filled
        raw, sizes = self._checked(arrays, named)
        ready = [self._stored(slot, array) for slot, array in zip(self._takes, raw, strict=True)]
        if self.sizes:
            self._note(raw, named, sizes)
        results = self._results(out, raw, sizes)
        stores = [stored_in(slot, array) for slot, array in zip(self._gives, results, strict=True)]
        self.launch(ready, stores, [sizes[name] for name in self.sizes])
        for slot, result, store in zip(self._gives, results, stores, strict=True):
            if store is not result and not np.shares_memory(store, result):
                self._write_back(slot, result, store)
        return results

    def prepare(self, *arrays: object, out: object = None, **named: object) -> Prepared:
        """A call whose arguments are checked and in place, to be made many times.

        It reads the arrays and fills ``out``, or arrays of its own, as they are at each call.
        Two threads must not make the same prepared call at once.
        """
        raw, sizes = self._checked(arrays, named)
        results = self._results(out, raw, sizes)
        stores = [stored_in(slot, array) for slot, array in zip(self._gives, results, strict=True)]
        taken = [self._stored(slot, array) for slot, array in zip(self._takes, raw, strict=True)]
        given = zip((*self._takes, *self._gives), (*raw, *results), (*taken, *stores), strict=True)
        for slot, array, used in given:
            if array is not used:
                raise ArgumentError(
                    f"{slot.name} would be copied, but a prepared call uses arrays in place; "
                    f"pass a contiguous array of dtype {STORAGE[slot.dtype].name}"
                )
        return Prepared(self.launch, raw, results, [sizes[name] for name in self.sizes])

    def save(
        self,
        path: str | PathLike[str],
        *,
        header: str | PathLike[str] | None = None,
        cpu: str | None = None,
    ) -> None:
        """Writes the kernel to a file, for `load_kernel`, or for C when ``path`` says so.

        ``k.so`` (or ``k.dylib``) is a shared library, ``k.o`` an object file; both export one
        function with the name of the file, and ``header`` is where its declaration goes. They may
        be for another ``cpu`` than this one, such as ``x86-64-v3`` or ``neoverse-n1``.
        """
        from eqsatad.backends.saved import save

        save(self, Path(path), None if header is None else Path(header), cpu)

    def assembly(self, cpu: str | None = None) -> str:
        """The kernel in assembly language, as it is for ``cpu``; None is this CPU."""
        from eqsatad.backends.saved import assembly

        return assembly(self, cpu)

    def report(self) -> KernelReport:
        """What the kernel does step by step: the kind of each nest, how it is run, and why."""
        from eqsatad.backends.steps import report

        return report(self)

    def _plain(self, arrays: Sequence[object], named: Mapping[str, object]) -> Plain | None:
        """The arrays in order, sizes and results, if the launcher takes arrays as they are.

        This is the short way for most calls; where it gives None, `_checked` says what is wrong.
        """
        told: list[object] = []
        if self.sizes:
            told = [named[name] for name in self.sizes if name in named]
            if any(type(size) is not int for size in told):
                return None
        given = arrays
        if len(named) > len(told):
            given = [named.get(name) for name in self.inputs]
            if arrays or len(named) != len(given) + len(told):
                return None
        if len(given) != len(self._takes):
            return None
        for slot, array in zip(self._takes, given, strict=True):
            if not slot.fits(array):
                return None
        fit: Sequence[Array] = given  # type: ignore[assignment]  # all of them are arrays
        key = (*told, *(array.shape for array in fit)) if self.sizes else ()
        form = self._forms.get(key)
        return None if form is None else (fit, *form)

    def _filled(self, out: object, plain: Plain) -> list[Array] | None:
        """Where the launcher writes: new arrays or ``out``, if that certainly overlaps nothing."""
        taken, _, results = plain
        if out is None:
            return [make(shape, dtype, taken) for shape, dtype, make in results]
        given = list(out) if isinstance(out, list | tuple) else [out]
        if len(given) != len(self._gives):
            return None
        filled: list[Array] = []
        for slot, (shape, *_), array in zip(self._gives, results, given, strict=True):
            if not slot.fits(array) or array.shape != shape or not array.flags.writeable:
                return None
            if any(may_share_memory(array, other) for other in (*taken, *filled)):
                return None
            filled.append(array)
        return filled

    def _note(
        self, arrays: Sequence[Array], named: Mapping[str, object], sizes: Mapping[str, int]
    ) -> None:
        """Keeps what a call with these shapes needs, for the next one."""
        if not self._direct or len(self._forms) >= FORMS:
            return
        told = [named[name] for name in self.sizes if name in named]
        key = (*told, *(array.shape for array in arrays))
        shapes = [slot.sized(sizes) for slot in self._gives]
        results = [
            (shape, slot.storage, maker(shape, slot.storage, like))
            for slot, shape, like in zip(self._gives, shapes, self.alike, strict=True)
        ]
        self._forms[key if self.sizes else ()] = [sizes[name] for name in self.sizes], results

    def _checked(
        self, arrays: Sequence[object], named: Mapping[str, object]
    ) -> tuple[list[Array], dict[str, int]]:
        """The arrays in order of the inputs, and all sizes."""
        given, sizes = self._bind(arrays, named)
        raw = [array_of(slot, argument) for slot, argument in zip(self._takes, given, strict=True)]
        sizes = deduce(self.loops, [array.shape for array in raw], sizes)
        for slot, array in zip(self._takes, raw, strict=True):
            check_shape(slot, array.shape, sizes)
        return raw, sizes

    def time(self, *arrays: object, repeat: int = 5, **named: object) -> float:
        """The least seconds that one call took, out of ``repeat`` calls after a first one."""
        out = self(*arrays, **named)
        best = float("inf")
        for _ in range(repeat):
            start = perf_counter()
            self(*arrays, out=out, **named)
            best = min(best, perf_counter() - start)
        return best

    def _bind(
        self, arrays: Sequence[object], named: Mapping[str, object]
    ) -> tuple[list[object], dict[str, int]]:
        """The arguments in order of the inputs, and the sizes that were given by name."""
        wanted = self._wanted
        if len(arrays) > len(self.inputs):
            raise ArgumentError(f"got {len(arrays)} arrays, expected {wanted}")
        found: dict[str, object] = dict(zip(self.inputs, arrays, strict=False))
        sizes: dict[str, int] = {}
        for name, argument in named.items():
            if name in found:
                raise ArgumentError(f"{name} was given twice: by position and by name")
            if name in self.inputs:
                found[name] = argument
            elif name in self.sizes:
                sizes[name] = _size(name, argument)
            else:
                raise ArgumentError(f"there is no input named {name!r}; expected {wanted}")
        missing = [slot.tensor for slot in self._takes if slot.name not in found]
        if missing:
            lacking = ", ".join(f"{tensor.name}{tensor.where_built}" for tensor in missing)
            raise ArgumentError(f"no array for {lacking}; expected {wanted}")
        return [found[name] for name in self.inputs], sizes

    def _signature(self) -> str:
        arrays = f"{len(self.inputs)} arrays ({', '.join(self.inputs)})"
        return f"{arrays} and sizes ({', '.join(self.sizes)})" if self.sizes else arrays

    def _stored(self, slot: Slot, array: Array) -> Array:
        """``array`` as the launcher takes it: native, contiguous, of the storage dtype."""
        if slot.accepted[array.dtype] == "rounded":
            self._copied[slot.name] = f"{slot.name} was rounded from float32 to bfloat16"
            return to_bits(array)
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        self._copied[slot.name] = f"{slot.name} was copied because it is not contiguous"
        return np.array(array, order="C", copy=True)

    def _results(
        self, out: object, inputs: Sequence[Array], sizes: Mapping[str, int]
    ) -> list[Array]:
        shapes = [slot.sized(sizes) for slot in self._gives]
        if out is None:
            dtypes = [
                STORAGE["float32" if slot.dtype == "bfloat16" else slot.dtype]
                for slot in self._gives
            ]
            return [
                maker(shape, dtype, like)(shape, dtype, inputs)
                for shape, dtype, like in zip(shapes, dtypes, self.alike, strict=True)
            ]
        given = list(out) if isinstance(out, list | tuple) else [out]
        if len(given) != len(shapes):
            raise ArgumentError(
                f"out has {len(given)} arrays, expected {len(shapes)} ({', '.join(self.outputs)})"
            )
        taken = list(zip(self.inputs, inputs, strict=True))
        results = []
        for slot, argument, shape in zip(self._gives, given, shapes, strict=True):
            result = destination(slot, argument, shape)
            check_apart(slot, result, taken)
            taken.append((f"out for {slot.name}", result))
            results.append(result)
        return results

    def _write_back(self, slot: Slot, result: Array, store: Array) -> None:
        if result.dtype == store.dtype:
            self._copied[slot.name] = f"{slot.name} was copied to an out that is not contiguous"
            result[...] = store
        else:
            result[...] = from_bits(store)


def _size(name: str, argument: object) -> int:
    if isinstance(argument, bool) or not isinstance(argument, int | np.integer):
        raise ArgumentError(f"size {name} is {argument!r}; give an integer of at least 1")
    return int(argument)
