import errno
import os
from concurrent.futures import ThreadPoolExecutor

import numba.core.caching
import numpy as np
import pytest

from murmuration.privacy.mechanisms.numba_jit import kernel


def twice(numbers):
    total = 0.0
    for number in numbers:
        total += 2.0 * number
    return total


def _calls_twice(numbers):
    return twice_compiled(numbers) + 1.0


@pytest.mark.parametrize("writable", [True, False])
def test_compiles_with_and_without_a_folder_for_the_result(writable, monkeypatch):
    if not writable:
        monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])
        with pytest.raises(RuntimeError, match="no locator"):
            numba.njit(cache=True)(twice)
    compiled = kernel(fastmath={"reassoc"})(twice)
    assert compiled(np.arange(4.0)) == 12.0
    assert compiled.dispatcher.signatures


@pytest.mark.parametrize(("kind", "length"), [("nbc", 0), ("nbc", 40), ("nbi", 0), ("nbi", 20)])
def test_what_was_cut_off_on_disk_is_compiled_anew(kind, length, tmp_path, monkeypatch):
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(tmp_path))
    assert kernel()(twice)(np.arange(4.0)) == 12.0
    [kept] = tmp_path.rglob(f"*.{kind}")
    os.truncate(kept, length)
    assert kernel()(twice)(np.arange(4.0)) == 12.0
    again = kernel()(twice)
    assert again(np.arange(4.0)) == 12.0
    assert sum(again.dispatcher.stats.cache_hits.values()) == 1  # what is on disk is whole
    assert kernel()(_calls_twice)(np.arange(4.0)) == 13.0


def test_a_full_disk_does_not_stop_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.core.config, "CACHE_DIR", str(tmp_path))

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(numba.core.caching.IndexDataCacheFile, "save", full)
    assert kernel()(twice)(np.arange(4.0)) == 12.0


@kernel(fastmath={"reassoc"})
def _outer(numbers):
    return twice_compiled(numbers) + 1.0


twice_compiled = kernel()(twice)


def test_a_kernel_may_call_another_that_was_not_called_before():
    assert _outer(np.arange(4.0)) == 13.0
    assert twice_compiled(np.arange(4.0)) == 12.0


def test_many_threads_may_call_first():
    compiled = kernel()(twice)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(compiled, [np.arange(4.0)] * 32)) == {12.0}
