"""Every test run has a cache of its own, so that what a user has kept decides no test."""

from collections.abc import Iterator
from functools import cache as once

import pytest

from eqsatad import cache
from eqsatad.backends import opencl
from eqsatad.errors import BackendError, MissingExtraError


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that are marked ``opencl`` need a device that can compile."""
    if item.get_closest_marker("opencl") and (missing := _without_opencl()):
        pytest.skip(missing)


@once
def _without_opencl() -> str:
    """Why OpenCL kernels cannot run here; empty where they can."""
    try:
        opencl.context()
    except (BackendError, MissingExtraError) as error:
        return str(error)
    return ""
