"""Kernels that are compiled for the sizes of each call: as fast as those for one size.

What was compiled is kept for the sizes that came last, so this is for programs that are called
with few sizes, often. A call with other sizes takes as long as building a kernel does.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock

from eqsatad.backends.kernel import Call, Kernel, Launch
from eqsatad.backends.storage import Array
from eqsatad.loops.nest import LoopProgram

KEPT = 16
SOURCE = "one that is compiled for the sizes of each call"

Make = Callable[[Mapping[str, int]], Kernel]


def specialised(program: LoopProgram, target: str, make: Make) -> Kernel:
    """A kernel that takes and gives what ``program`` does, and runs what ``make`` gives."""
    names = tuple(size.name for size in program.sizes)
    return Kernel(program, target=target, source=SOURCE, launch=Specialised(names, make))


class Specialised:
    """Runs the kernel for the sizes of a call."""

    def __init__(self, names: Sequence[str], make: Make) -> None:
        self._names = names
        self._make = make
        self._kept: OrderedDict[tuple[int, ...], Launch] = OrderedDict()
        self._lock = Lock()

    def __call__(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]
    ) -> None:
        self._at(tuple(sizes))(inputs, outputs, ())

    def prepared(
        self, inputs: Sequence[Array], outputs: Sequence[Array], sizes: Sequence[int]
    ) -> Call:
        """A call on these arrays."""
        launch = self._at(tuple(sizes))
        ready: Callable[..., Call] = getattr(launch, "prepared", partial(partial, launch))
        return ready(inputs, outputs, ())

    def _at(self, sizes: tuple[int, ...]) -> Launch:
        with self._lock:
            if sizes not in self._kept:
                made = self._make(dict(zip(self._names, sizes, strict=True)))
                self._kept[sizes] = made.launch
                if len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(sizes)
            return self._kept[sizes]
