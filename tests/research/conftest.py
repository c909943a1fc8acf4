"""What tests of mechanisms, strategies and servers have in their rooms, for those of research."""

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest


def _conftest(room: str) -> ModuleType:
    file = Path(__file__).parents[1] / room / "conftest.py"
    spec = importlib.util.spec_from_file_location(f"conftest_of_{room}", file)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


_PRIVACY, _STRATEGIES = _conftest("privacy"), _conftest("strategies")
broken_off = _conftest("server").broken_off
make_grid, make_filter_world = _STRATEGIES.make_grid, _STRATEGIES.make_filter_world
_CHECKS = SimpleNamespace(**vars(_PRIVACY._CHECKS), **vars(_STRATEGIES._CHECKS))


@pytest.fixture(scope="session")
def checks() -> SimpleNamespace:
    """The checks of both rooms."""
    return _CHECKS
