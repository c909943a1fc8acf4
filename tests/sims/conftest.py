"""Watched runs (see ``tests/shared/watch.py``), and a Ray cluster of this machine."""

import os
import warnings

import pytest
from watch import Watch


@pytest.fixture(scope="session")
def watch(tmp_path_factory):
    """A ``Watch`` in a folder of its own."""
    return Watch(tmp_path_factory.mktemp("watched"))


@pytest.fixture(scope="module")
def ray():
    """Ray, with two processors."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    module = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
        )
    yield module
    module.shutdown()
