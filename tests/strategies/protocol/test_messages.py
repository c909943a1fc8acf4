"""Encoding and decoding, and what a malformed message is answered with."""

import math

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from named import asked

from murmuration.privacy.mechanisms.tally import STEPS, Tally
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.messages import (
    MalformedReply,
    RegistryEntry,
    UserSelection,
)

KEYS = np.array([3, 2**64 - 1], dtype=np.uint64)


def sums(**arrays):
    return RecordDict({"sums": ArrayRecord({name: Array(a) for name, a in arrays.items()})})


def garbage(data, stype="numpy.ndarray"):
    array = Array(np.zeros(3, dtype=np.float32))
    return Array(dtype=array.dtype, shape=array.shape, stype=stype, data=data)


def registered(place, keys):
    users = ArrayRecord({"keys": keys})
    return RecordDict({"registry": ConfigRecord({"place": place}), "users": users})


@pytest.mark.parametrize("counts_U", [None, np.array([5, 1])])
def test_registry_round_trip(counts_U):
    entry = messages.read_registry(messages.registry_reply(RegistryEntry(4, KEYS, counts_U)))
    assert entry.place == 4
    assert entry.keys_U.tolist() == KEYS.tolist()
    assert entry.keys_U.dtype == np.uint64
    assert (entry.counts_U is None) == (counts_U is None)
    if counts_U is not None:
        assert entry.counts_U.tolist() == [5, 1]
    assert entry.randomized is False


def test_a_registration_says_whether_labels_were_randomized():
    told = messages.registry_reply(RegistryEntry(0, KEYS, None, randomized=True))
    assert messages.read_registry(told).randomized is True
    del told.config_records["registry"]["randomized"]
    assert messages.read_registry(told).randomized is False


@pytest.mark.parametrize("usable", [None, 0, 7])
def test_a_registration_of_a_simulation_says_how_many_rows_are_of_use(usable):
    told = messages.registry_reply(RegistryEntry(0, KEYS, None, usable=usable))
    assert messages.read_registry(told).usable == usable
    told.config_records["registry"]["usable"] = 0.5
    with pytest.raises(MalformedReply, match="wrong shape"):
        messages.read_registry(told)


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"registry": ConfigRecord({"place": 1})}),
        messages.registry_reply(RegistryEntry(0, KEYS, np.array([1]))),
        messages.registry_reply(RegistryEntry(0, KEYS.reshape(1, 2), None)),
        registered("first", Array(KEYS)),
        registered(0, Array(np.array([1.0]))),
        registered(0, garbage(b"no array")),
    ],
)
def test_malformed_registry(content):
    with pytest.raises(MalformedReply):
        messages.read_registry(content)


def test_work_round_trip():
    theta_D = np.arange(3) / 7
    model = messages.model_record(theta_D)
    content = messages.work_request(model, {"round": 2, "clip-norm": 0.5}, asked([4, 9]))
    about = UserSelection.of(content)
    assert (about.salt, about.names_S.tolist()) == (b"salt", asked([4, 9]).names_S.tolist())
    work = messages.read_work(content, np.array([7, 3]))
    assert work.arrays["theta"].dtype == np.float32
    np.testing.assert_array_equal(work.arrays["theta"], theta_D.astype(np.float32))
    assert work.users_S.tolist() == [7, 3]
    assert work.number("clip-norm") == 0.5
    tensor = work.tensor("theta")
    tensor += 1  # a tensor of its own
    np.testing.assert_array_equal(work.arrays["theta"], theta_D.astype(np.float32))
    with pytest.raises(KeyError):
        work.number("group-size")


@pytest.mark.parametrize(
    ("users", "salt"),
    [
        (asked([1, 2, 1]).names_S.tobytes(), b"salt"),
        (b"seven b", b"salt"),
        ([1], b"salt"),
        (asked([1]).names_S.tobytes(), "salt"),
    ],
)
def test_nobody_is_named_twice_or_otherwise(users, salt):
    content = messages.work_request(messages.model_record(np.zeros(1)), {}, asked([0]))
    content["cohort"] = ConfigRecord({"users": users, "salt": salt})
    with pytest.raises(ValueError, match=r"twice|64 bits"):
        UserSelection.of(content)


def test_sums_round_trip():
    read = messages.read_sums(
        messages.sums_reply({"sum": np.ones(3, np.float32), "b": np.zeros(2)}),
        {"sum": (3,), "b": (2,)},
    )
    assert read["sum"].tolist() == [1, 1, 1]
    assert read["b"].shape == (2,)


def test_whole_steps_travel_in_32_bits_and_come_back_the_same():
    steps = {"sum": 2.0**-30}
    sums = {"sum": np.array([1.5, -0.75, 2.0**-30]), "loss": np.array([0.1])}
    content, shapes = messages.sums_reply(sums, steps), {"sum": (3,), "loss": (1,)}
    lengths = {name: len(array.data) - 128 for name, array in content.array_records["sums"].items()}
    assert lengths == {"sum": 4 * 3, "loss": 8}
    read = messages.read_sums(content, shapes, {**steps, "loss": 0.0})
    for name, value in sums.items():
        assert read[name].dtype == np.float64
        assert read[name].tolist() == value.tolist()
    # Who did not ask for whole steps does not take them for values, and floats are taken as ever.
    with pytest.raises(MalformedReply, match="floating"):
        messages.read_sums(content, shapes)
    assert messages.read_sums(messages.sums_reply(sums), shapes, steps)["sum"][0] == 1.5


@pytest.mark.parametrize("value", [2.0, -2.0, 0.3, math.nan, math.inf])
def test_a_sum_that_is_not_so_many_whole_steps_is_not_sent(value):
    with pytest.raises(ValueError, match="a sum"):
        messages.sums_reply({"sum": np.array([value])}, {"sum": 2.0**-30})


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (RecordDict(), "not an answer"),
        (RecordDict({"sums": MetricRecord({"sum": 1.0})}), "not an answer"),
        (sums(), "asked for"),
        (sums(sum=np.ones(4)), "asked for"),
        (sums(sum=np.ones((3, 1))), "asked for"),
        (sums(total=np.ones(3)), "asked for"),
        (sums(sum=np.ones(3), extra=np.ones(3)), "asked for"),
        (sums(sum=np.ones(3, dtype=np.int64)), "floating"),
        (sums(sum=np.ones(3, dtype=complex)), "no array of numbers"),
        (RecordDict({"sums": ArrayRecord({"sum": garbage(b"")})}), "not an answer"),
        (RecordDict({"sums": ArrayRecord({"sum": garbage(b"PK\x03\x04")})}), "not an answer"),
        (
            RecordDict({"sums": ArrayRecord({"sum": garbage(b"\x93NUMPY\x01\x00")})}),
            "not an answer",
        ),
        (
            RecordDict({"sums": ArrayRecord({"sum": garbage(b"x", "torch.Tensor")})}),
            "not an answer",
        ),
    ],
)
def test_malformed_sums(content, reason):
    with pytest.raises(MalformedReply, match=reason):
        messages.read_sums(content, {"sum": (3,)})


def test_pickled_objects_are_not_loaded():
    import io
    import pickle

    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was executed",))

    buffer = io.BytesIO()
    np.save(buffer, np.array([Bomb()], dtype=object), allow_pickle=True)
    for data in (buffer.getvalue(), pickle.dumps(Bomb())):
        content = RecordDict({"sums": ArrayRecord({"sum": garbage(data)})})
        with pytest.raises(MalformedReply):
            messages.read_sums(content, {"sum": (1,)})


def told(*first, figures=11):
    sum_F = np.array([*first, *(0 for _ in range(figures - len(first)))])
    return messages.sums_reply({messages.TALLY: sum_F})


def test_tally_round_trip():
    got_F = messages.read_tally(told(1.5 * STEPS, 0.5 * STEPS), Tally(), users=2)
    assert got_F.tolist() == [1.5 * STEPS, 0.5 * STEPS, *9 * [0.0]]


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"tally": MetricRecord({"correct": 1.0})}),
        told(float("nan"), 0.0),
        told(2.0 * STEPS, 1.0 * STEPS),  # three users, where two were asked
        told(1e12, 0.0),
        told(-1.0, STEPS + 1.0),
        told(-1.0 * STEPS, 2.0 * STEPS),
        told(3.0 * STEPS),
        told(0.5, STEPS - 0.5),
        told(float(STEPS), figures=12),
        told(float(STEPS), figures=2),
        told(1.0, figures=1),
        told(1, STEPS - 1),  # whole numbers that are no floating-point numbers
    ],
)
def test_malformed_tally(content):
    with pytest.raises(MalformedReply):
        messages.read_tally(content, Tally(), users=2)
