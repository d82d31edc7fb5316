"""Every test run has a cache of its own, so that what a user has kept decides no test."""

from collections.abc import Iterator

import pytest

from eqsatad import cache


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield
