"""Arrays between closed pages: a read or a store outside of them ends the process."""

import ctypes
import mmap
import sys

import numpy as np
import pytest

CLOSED = pytest.mark.skipif(sys.platform == "win32", reason="pages are closed by mprotect")


def between_pages(array, at_end):
    """A copy of ``array`` that begins or ends where a closed page does, with another behind it."""
    page = mmap.PAGESIZE
    room = max(1, -(-array.nbytes // page)) * page
    block = np.frombuffer(mmap.mmap(-1, room + 2 * page), "uint8")
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for place in (0, page + room):
        address = ctypes.c_void_p(block.ctypes.data + place)
        assert protect(address, ctypes.c_size_t(page), 0) == 0
    start = page + room - array.nbytes if at_end else page
    copy = block[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
