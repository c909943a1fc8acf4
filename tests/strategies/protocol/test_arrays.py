"""Arrays travel as Flower's own conversion has them, and nothing else is read."""

import numpy as np
import pytest
from flwr.app import Array
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from murmuration.strategies.protocol.arrays import decoded, encoded

DTYPES = st.sampled_from([np.float32, np.float64, np.int64, np.uint64, np.uint8, np.int32])
SHAPES = arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)


@given(DTYPES.flatmap(lambda dtype: arrays.arrays(dtype, SHAPES)))
def test_byte_for_byte(values):
    mine, theirs = encoded(values), Array(values)
    assert (mine.dtype, mine.stype) == (theirs.dtype, theirs.stype)
    assert tuple(mine.shape) == tuple(theirs.shape)
    for array in (mine, theirs):
        result = decoded(array)
        assert (result.dtype, result.shape) == (values.dtype, values.shape)
        assert result.tobytes() == values.tobytes()
        assert result.flags.writeable
    assert mine.data == theirs.data


@pytest.mark.parametrize(
    "values",
    [np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.arange(12)[::2], np.array(3.0)],
)
def test_whatever_order_they_have_in_memory(values):
    result = decoded(encoded(values))
    np.testing.assert_array_equal(result, values)
    assert result.flags.c_contiguous


@pytest.mark.parametrize(
    "values",
    [
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(4, dtype=">i4"),
        np.array(["a", "bc"]),
        np.ones(3, dtype=complex),
        np.ones(3, dtype=np.float16),
        np.ones(3, dtype=bool),
        np.ones((1, 1, 1, 1)),
    ],
)
def test_another_order_or_kind_of_numbers_is_not_read(values):
    with pytest.raises(ValueError, match=r"no array of numbers|another type or length|shape"):
        decoded(Array(values))


@given(st.binary(max_size=60), st.integers(0, 140))
def test_of_damaged_bytes_nothing_is_read_but_the_whole(more, cut):
    whole = Array(np.arange(4.0)).data
    for data in (whole[:cut], whole[:cut] + more, more, whole[:10] + more + whole[10:]):
        array = Array(dtype="float64", shape=(4,), stype="numpy.ndarray", data=data)
        if data[:-32] == whole[:-32] and len(data) == len(whole):
            assert decoded(array).tobytes() == data[-32:]
        else:
            with pytest.raises(ValueError, match=r"shape|another type or length"):
                decoded(array)


@pytest.mark.parametrize("shape", [(-1,), (-4, -1), (10**12,), (2**62, 4), (4, 0, 2**62), (3,), ()])
def test_a_shape_that_it_has_not(shape):
    whole = Array(np.arange(4.0))
    with pytest.raises(ValueError, match=r"shape|another type or length"):
        decoded(Array(dtype="float64", shape=shape, stype="numpy.ndarray", data=whole.data))


def test_other_kinds_are_not_read():
    for kind, dtype in (("torch.Tensor", "float64"), ("numpy.ndarray", "object")):
        with pytest.raises(ValueError, match="no array of numbers"):
            decoded(Array(dtype=dtype, shape=(1,), stype=kind, data=b"x"))
