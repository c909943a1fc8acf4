"""Records of a message by name."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from murmuration.strategies.protocol.records import arrays_of, config_of


@pytest.fixture
def content():
    arrays = ArrayRecord({"theta": Array(np.zeros(2))})
    return RecordDict({"model": arrays, "parameters": ConfigRecord({"round": 1})})


def test_a_record_is_the_one_of_that_name_and_kind(content):
    assert config_of(content, "parameters") is content["parameters"]
    assert arrays_of(content, "model") is content["model"]


@pytest.mark.parametrize("name", ["model", "none"])
def test_another_kind_or_none_is_a_missing_key(content, name):
    with pytest.raises(KeyError, match=name):
        config_of(content, name)


@pytest.mark.parametrize("name", ["parameters", "none"])
def test_another_kind_or_none_is_no_record_of_arrays(content, name):
    with pytest.raises(KeyError, match=name):
        arrays_of(content, name)
