"""Arrays travel as Flower's own conversion has them, and nothing is read that it would refuse."""

from io import BytesIO

import numpy as np
import pytest
from flwr.app import Array
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from murmuration.strategies.protocol.arrays import decoded, encoded

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint64, np.uint8, bool])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@given(DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)))
def test_byte_for_byte(values):
    mine, theirs = encoded(values), Array(values)
    assert (mine.dtype, mine.stype) == (theirs.dtype, theirs.stype)
    assert tuple(mine.shape) == tuple(theirs.shape)
    for array in (mine, theirs):
        found = decoded(array)
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        assert found.tobytes() == values.tobytes()
        assert found.flags.writeable
    assert mine.data == theirs.data


@pytest.mark.parametrize(
    "values",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(12)[::2],
        np.array(["a", "bc"]),
        np.array(3.0),
        np.arange(4, dtype=">i4"),
    ],
)
def test_whatever_order_or_type(values):
    for array in (encoded(values), Array(values)):
        np.testing.assert_array_equal(decoded(array), values)


@given(st.binary(max_size=60), st.integers(0, 140))
def test_damaged_bytes_are_refused_as_flower_refuses_them(more, cut):
    """Never more numbers than there are bytes, and no other ones than Flower would read."""
    whole = Array(np.arange(4.0)).data
    for data in (whole[:cut], whole[:cut] + more, more, whole[:10] + more + whole[10:]):
        array = Array(dtype="float64", shape=(4,), stype="numpy.ndarray", data=data)
        outcomes = []
        for read in (decoded, Array.numpy):
            try:
                outcomes.append(np.asarray(read(array)).tobytes())
            except Exception:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1] or outcomes[0] is None


def test_objects_and_other_kinds_are_not_read():
    file = BytesIO()
    np.save(file, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="Object arrays"):
        decoded(Array(dtype="object", shape=(1,), stype="numpy.ndarray", data=file.getvalue()))
    with pytest.raises(TypeError):
        decoded(Array(dtype="float64", shape=(1,), stype="torch.Tensor", data=b"x"))


def test_a_length_below_zero_is_refused_and_not_taken_for_all_there_is():
    data = Array(np.arange(4.0)).data.replace(b"(4,)", b"(-1,)").replace(b" }   ", b" }  ", 1)
    array = Array(dtype="float64", shape=(-1,), stype="numpy.ndarray", data=data)
    for read in (decoded, Array.numpy):
        with pytest.raises(ValueError, match=r"negative|could not|cannot"):
            read(array)
