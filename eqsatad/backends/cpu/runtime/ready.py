"""What a loop program became: kept on disk, so that it need not be planned and written again.

The key covers the whole program, the CPU, the compiler and the code that decides, so that an entry
can be damaged but not out of date. An entry is a line of JSON, then temporaries, text and object
code, one after the other.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from hashlib import blake2b

from eqsatad import cache
from eqsatad.backends.cpu.runtime.caches import found
from eqsatad.backends.cpu.runtime.machine import identity
from eqsatad.errors import CacheWarning, StoreError
from eqsatad.loops.nest import LoopProgram
from eqsatad.terms import store
from eqsatad.terms.nodes import Placeholder, Tensor, Term

LAYERS = ("terms", "loops", "backends")
"""The packages whose code decides what a loop program becomes."""


@dataclass(frozen=True)
class Ready:
    """A module in LLVM's language, its object code, and the C functions and memory it needs."""

    text: str
    content: bytes
    outside: tuple[str, ...]
    temporaries: tuple[Tensor, ...]

    @staticmethod
    def of(program: LoopProgram, exact: bool, make: Callable[[], Ready]) -> Ready:
        """What ``program`` became before, or what ``make`` makes of it."""
        if cache.directory() is None:
            return make()
        key = key_of(program, exact)
        found = _fetched(key)
        if found is None:
            found = make()
            cache.keep(key, found.dumped())
        return found

    def dumped(self) -> bytes:
        """This as bytes for `loaded`."""
        parts = (store.dump(self.temporaries), self.text.encode(), self.content)
        head = {"outside": self.outside, "lengths": [len(part) for part in parts]}
        return b"".join((json.dumps(head).encode(), b"\n", *parts))


def loaded(data: bytes) -> Ready:
    """What `Ready.dumped` wrote."""
    line, _, rest = data.partition(b"\n")
    head = json.loads(line)
    buffers, text, content = head["lengths"]
    if buffers + text + content != len(rest):
        raise StoreError(f"expected {buffers + text + content} bytes, found {len(rest)}")
    return Ready(
        rest[buffers : buffers + text].decode(),
        rest[buffers + text :],
        tuple(map(str, head["outside"])),
        tuple(store.load(rest[:buffers])),
    )


def plain(tensor: Tensor) -> Tensor:
    """``tensor`` without what it is computed from."""
    return Placeholder(tensor.name, tensor.shape, tensor.dtype)


def key_of(program: LoopProgram, exact: bool) -> str:
    """A digest of all that the code for ``program`` depends on."""
    parts = (cache.code(*LAYERS), identity(), repr(found()), str(exact), *_spelled(program))
    return blake2b("\x1f".join(parts).encode(), digest_size=20).hexdigest()


def _spelled(value: object) -> Iterator[str]:
    """Everything that ``value`` holds."""
    if isinstance(value, Term):
        yield value.key
    elif isinstance(value, tuple):
        yield f"{len(value)} of"
        for part in value:
            yield from _spelled(part)
    elif is_dataclass(value):
        yield type(value).__name__
        for field in fields(value):
            yield from _spelled(getattr(value, field.name))
    else:
        yield repr(value)


def _fetched(key: str) -> Ready | None:
    content = cache.fetch(key)
    if content is None:
        return None
    try:
        return loaded(content)
    except (StoreError, ValueError, TypeError, KeyError, AttributeError) as error:
        message = f"the cache entry {key} cannot be read ({error}); it is made again"
        warnings.warn(message, CacheWarning, stacklevel=2)
        return None
