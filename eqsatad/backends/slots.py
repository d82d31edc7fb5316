"""What a kernel expects of the arrays that it takes and gives, and what is said of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

import numpy as np

from eqsatad.backends.extents import value
from eqsatad.backends.storage import STORAGE, Array
from eqsatad.errors import ArgumentError
from eqsatad.terms.nodes import Const, Tensor


@dataclass(frozen=True)
class Slot:
    """What is expected of one argument: ``shape`` is None when it has symbolic sizes."""

    tensor: Tensor
    shape: tuple[int, ...] | None

    @staticmethod
    def of(tensor: Tensor) -> Slot:
        known = [size.value for size in tensor.shape if isinstance(size, Const)]
        return Slot(tensor, tuple(known) if len(known) == len(tensor.shape) else None)

    @property
    def name(self) -> str:
        return self.tensor.name

    @property
    def dtype(self) -> str:
        return self.tensor.dtype

    @cached_property
    def storage(self) -> np.dtype[np.generic]:
        return STORAGE[self.dtype]

    @cached_property
    def accepted(self) -> dict[np.dtype[np.generic], str]:
        """The array dtypes that may be passed, and how each is brought to storage."""
        if self.dtype == "bfloat16":
            return {np.dtype("uint16"): "as it is", np.dtype("float32"): "rounded"}
        return {STORAGE[self.dtype]: "as it is"}

    def fits(self, array: object) -> TypeGuard[Array]:
        """Whether ``array`` can be used in place: of this dtype and known shape, and contiguous."""
        if type(array) is not np.ndarray or array.dtype is not self.storage:
            return False
        flags = array.flags
        known = self.shape is None or array.shape == self.shape
        return known and flags.c_contiguous and flags.aligned

    def sized(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape at ``sizes``."""
        if self.shape is not None:
            return self.shape
        return tuple(value(extent, sizes) for extent in self.tensor.shape)


def array_of(slot: Slot, argument: object) -> Array:
    """``argument`` as an array of one of the accepted dtypes."""
    if not isinstance(argument, np.ndarray | np.generic) and hasattr(argument, "__dlpack__"):
        try:
            argument = np.from_dlpack(argument)
        except Exception as cause:  # whatever the other library raises, it is about this argument
            raise ArgumentError(
                f"{slot.name} offers DLPack but cannot be read by the CPU: {cause}"
            ) from cause
    if not isinstance(argument, np.ndarray | np.generic):
        raise ArgumentError(
            f"{slot.name} is a {type(argument).__name__}; pass an array of dtype {slot.dtype}"
            f"{slot.tensor.where_built}, for example numpy.asarray({slot.name}, {_spelled(slot)!r})"
        )
    return _typed(slot, np.asarray(argument))


def _typed(slot: Slot, array: Array) -> Array:
    if slot.dtype == "bfloat16" and array.dtype.name == "bfloat16":
        return array.view("uint16")
    if array.dtype not in slot.accepted or not array.dtype.isnative:
        order = "" if array.dtype.isnative else " in foreign byte order"
        raise ArgumentError(
            f"{slot.name} has dtype {array.dtype.name}{order}, expected {slot.dtype}"
            f"{slot.tensor.where_built}; convert it with {slot.name}.astype({_spelled(slot)!r})"
        )
    return array


def _spelled(slot: Slot) -> str:
    """The dtype of ``slot`` in the words of numpy."""
    return "float32" if slot.dtype == "bfloat16" else slot.dtype


def check_shape(slot: Slot, shape: tuple[int, ...], sizes: Mapping[str, int]) -> None:
    """Raises an error where an array does not have the shape of ``slot`` at ``sizes``."""
    expected = slot.sized(sizes)
    if shape != expected:
        known = ", ".join(f"{name} = {sizes[name]}" for name in sorted(sizes))
        where = f" (with {known})" if slot.shape is None else ""
        built = slot.tensor.where_built
        raise ArgumentError(f"{slot.name} has shape {shape}, expected {expected}{where}{built}")


def destination(slot: Slot, given: object, shape: tuple[int, ...]) -> Array:
    """``given`` as the array that a result goes to."""
    if not isinstance(given, np.ndarray):
        raise ArgumentError(f"out for {slot.name} is a {type(given).__name__}; pass an array")
    if given.shape != shape:
        raise ArgumentError(f"out for {slot.name} has shape {given.shape}, expected {shape}")
    if not given.flags.writeable:
        raise ArgumentError(f"out for {slot.name} is read-only; pass an array that can be written")
    return _typed(slot, given)


def check_apart(slot: Slot, given: Array, others: Sequence[tuple[str, Array]]) -> None:
    """Raises an error where ``given`` shares memory with one of ``others``."""
    for name, array in others:
        if np.may_share_memory(given, array) and _overlap(given, array):
            raise ArgumentError(
                f"out for {slot.name} overlaps {name} in memory; pass an array of its own"
            )


def _overlap(a: Array, b: Array) -> bool:
    try:
        # The search for a common address is exponential at worst, so it gets a limit.
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]  # any int is
    except np.exceptions.TooHardError:
        return True


def stored_in(slot: Slot, result: Array) -> Array:
    """Where the launcher writes: ``result`` itself, or an array that is copied to it."""
    storage = STORAGE[slot.dtype]
    if result.dtype == storage and result.flags.c_contiguous and result.flags.aligned:
        return result
    return np.empty(result.shape, storage)
