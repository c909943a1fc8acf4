"""A registered node that answers with whatever can be put in the place of an array or a number.

Every type of message that nodes answer is read by one of ``READERS``. Each gives what was asked
for, or is a MalformedReply, which leaves that node out and nobody else.
"""

import io
import itertools
import pickle
import zipfile

import numpy as np
import pytest
from failing import Prepared
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from hypothesis import given
from hypothesis import strategies as st

from murmuration.client.app import QUERIES
from murmuration.privacy.mechanisms.randomized_response import ToldLabels
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.privacy.secure_aggregation import crypto
from murmuration.privacy.secure_aggregation.party import (
    SEALED_BYTES,
    Opened,
    PublicKeys,
    Shared,
)
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol import (
    label_queries,
    messages,
    plan_query,
    public_items,
    secure_messages,
)
from murmuration.strategies.protocol.users import Registry

TOLD = ToldLabels(
    np.array([0, 2, 3]),
    np.array([3, 7, 5], dtype=np.uint64),
    np.array([1, 0, 1]),
    np.array([2, 2, 2]),
    np.array([1.0, 2.0]),
)
KEYS = PublicKeys(crypto.public_key(b"1" * 32), crypto.public_key(b"2" * 32))
ENTRY = messages.RegistryEntry(0, np.array([5, 9], dtype=np.uint64), np.array([1, 2]), places=1)
TALLY_F = Tally().contribution(0.5)


def items():
    arrays = {
        "counts": np.array([1, 1]),
        "prompt": np.array([0, 0]),
        "shown": np.array([[0, 1], [1, 0]]),
        "texts": np.frombuffer(b'[["p"], ["a", "b"]]', dtype=np.uint8),
    }
    about = ConfigRecord({"kind": "pairs"})
    return RecordDict({"items": messages.array_record(arrays), "about": about})


#: Of each question an honest answer, and what reads it.
READERS = {
    "query.registry": (messages.registry_reply(ENTRY), messages.read_registry),
    "query.plan": (plan_query.reply(""), plan_query.read_reply),
    "query.items": (items(), lambda content: public_items.read(content, 2)),
    "query.labels": (label_queries.reply(TOLD), lambda result: label_queries.read_reply(result, 2)),
    "query.secure_keys": (
        secure_messages.keys_reply(secure_messages.Entry(KEYS)),
        secure_messages.read_keys,
    ),
    "query.secure_shares": (
        secure_messages.shares_reply(Shared({2: bytes(SEALED_BYTES)}, b"h" * 32)),
        lambda content: secure_messages.read_shares(content, 1, 2),
    ),
    "query.secure_unmask": (
        secure_messages.opened_reply(Opened({1: b"y" * 33}, {})),
        lambda content: secure_messages.read_opened(content, [1], []),
    ),
    "train": (
        messages.sums_reply({"sum": np.ones(3), "within": np.ones(1)}, {"within": 0.5}),
        lambda result: messages.read_sums(result, {"sum": (3,), "within": (1,)}, {"within": 0.5}),
    ),
    "train under masks": (
        secure_messages.masked_reply(np.arange(3, dtype=np.uint64)),
        lambda content: secure_messages.read_masked(content, 3),
    ),
    "evaluate": (
        messages.sums_reply({messages.TALLY: TALLY_F}),
        lambda content: messages.read_tally(content, Tally(), 1),
    ),
}


def saved(save, *values, **named):
    file = io.BytesIO()
    save(file, *values, **named)
    return file.getvalue()


def zipped(name, data):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return file.getvalue()


def npy(values, version=(1, 0)):
    file = io.BytesIO()
    np.lib.format.write_array(file, values, version=version)
    return file.getvalue()


def header(text):
    raw = text.encode()
    return b"\x93NUMPY\x01\x00" + len(raw).to_bytes(2, "little") + raw


ONE = npy(np.ones(3))
#: Bytes of all that numpy or pickle would take for an array, and of what looks like one.
CONTAINERS = [
    saved(np.savez, np.ones(3)),
    saved(np.savez, sum=np.ones(3)),
    saved(np.savez_compressed, np.zeros(10**6)),
    saved(np.save, np.array([{}, 1], dtype=object), allow_pickle=True),
    pickle.dumps(np.ones(3)),
    pickle.dumps({"a": 1}),
    zipped("arr_0.npy", npy(np.ones(3))),
    zipped("x", b"0" * 10**6),
    b"",
    b"\x93NUMPY",
    ONE[:-1],
    ONE + b"\x00",
    ONE[:60],
    npy(np.ones(3), (2, 0)),
    npy(np.ones(3), (3, 0)),
    npy(np.asfortranarray(np.ones((3, 2)))),
    header("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }\n"),
    header("{'descr': '<f8', 'fortran_order': False, 'shape': (-3,), }\n") + bytes(24),
    header("{'descr': '<f8', 'fortran_order': False, 'shape': ((((((((3,),),),),),),),), }\n"),
    header("(" * 200 + "\n"),
    header("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }\n") + bytes(24),
    header("{'descr': '|V8', 'fortran_order': False, 'shape': (3,), }\n") + bytes(24),
]
#: Arrays of all types, orders and lengths.
VALUES = [
    np.array(1.0),
    np.ones(0),
    np.ones((3, 1)),
    np.ones((1, 3)),
    np.ones(4),
    np.ones(3, dtype=">f8"),
    np.ones(3, dtype=np.float16),
    np.ones(3, dtype=np.complex128),
    np.ones(3, dtype=bool),
    np.ones(3, dtype=np.int32),
    np.array(["a", "b", "c"]),
    np.array([b"a", b"b", b"c"]),
    np.array(["2020-01-01"] * 3, dtype="datetime64[D]"),
    np.zeros(3, dtype=[("x", "<f8")]),
    np.full(3, np.nan),
    np.full(3, np.inf),
    np.full(3, 5e-324),
    np.full(3, -1e308),
    np.full(3, 2**63, dtype=np.uint64),
    np.full(3, -(2**63)),
    np.full(4, 2**62),
    np.full(2, 2**63 - 1),
]


def forged():
    """Arrays that say one thing of themselves and hold another."""
    for dtype, shape in itertools.product(
        ("float64", "uint64", "int64", "uint8", "object", "", ">f8", "\ud7ff"),
        ((3,), (2,), (0,), (), (2, 2), (10**12,), (0, 2**62, 2**62), (1,) * 40),
    ):
        for data in (*CONTAINERS, ONE, npy(np.ones(2)), npy(np.ones(2, dtype=np.uint64))):
            yield Array(dtype=dtype, shape=shape, stype="numpy.ndarray", data=data)
    for kind in ("torch.Tensor", "", "pickle"):
        yield Array(dtype="float64", shape=(3,), stype=kind, data=ONE)
    yield from map(Array, VALUES)


NUMBERS = [0, -1, 2**62, 1.5, float("nan"), True, "", "x" * 1000, b"", b"x" * 33, [], [1], ["x"]]


def read(reader, content):
    """Return what was asked for, or None for a malformed answer; nothing else may be raised."""
    try:
        return reader(content)
    except messages.MalformedReply as error:
        assert len(str(error)) <= 1000
        return None


def pieces(result):
    """Yield all numbers and arrays in what was read."""
    if isinstance(result, dict):
        yield from itertools.chain(*map(pieces, result.values()))
    elif isinstance(result, np.ndarray):
        yield result
    elif hasattr(result, "__dict__"):
        yield from pieces(vars(result))


def test_every_type_of_message_is_here():
    assert {*(f"query.{name}" for name in QUERIES), "train", "evaluate"} <= set(READERS)


@pytest.mark.parametrize("kind", READERS)
def test_whatever_stands_in_an_arrays_place(kind):
    honest, reader = READERS[kind]
    types = [array.dtype for array in pieces(reader(honest))]
    arrays = [*forged()]
    for place, record in honest.array_records.items():
        for name, array in itertools.product(record, arrays):
            content = RecordDict({**honest, place: ArrayRecord({**record, name: array})})
            result = read(reader, content)
            if result is not None:
                assert [array.dtype for array in pieces(result)] == types
                assert all(array.dtype.isnative for array in pieces(result))


@pytest.mark.parametrize("kind", READERS)
def test_whatever_stands_in_a_numbers_place(kind):
    honest, reader = READERS[kind]
    for place, record in honest.config_records.items():
        for name, value in itertools.product((*record, "more"), NUMBERS):
            read(reader, RecordDict({**honest, place: ConfigRecord({**record, name: value})}))
        for name in record:
            left = {key: value for key, value in record.items() if key != name}
            read(reader, RecordDict({**honest, place: ConfigRecord(left)}))
    for place in honest:
        assert read(reader, RecordDict({k: v for k, v in honest.items() if k != place})) is None
        for other in (ConfigRecord({"x": 1}), messages.array_record({"x": np.ones(3)})):
            read(reader, RecordDict({**honest, place: other}))


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
def test_bytes_that_were_changed_on_their_way(kind, data):
    honest, reader = READERS[kind]
    raw = bytearray(recorddict_to_proto(honest).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    proto = recorddict_to_proto(RecordDict())
    try:
        proto.ParseFromString(bytes(raw))
        content = recorddict_from_proto(proto)
    except Exception:
        return  # Flower does not hand it over (``server.app``)
    read(reader, content)


def test_a_node_that_is_asked_whom_it_hosts_ends_nobodys_run():
    """Before, an archive of numpy's ended the run: it has no shape."""
    LocalGrid(None, 0, {})  # who sends messages in this process
    users = {node: np.array([node], dtype=np.uint64) for node in (1, 3)}
    entries = {node: messages.RegistryEntry(-1, keys, None) for node, keys in users.items()}
    for array in (*map(Array, VALUES), *forged()):
        content = messages.registry_reply(ENTRY)
        content["users"] = ArrayRecord({"keys": array})
        left_out = {}
        registry = Registry.ask(
            Prepared({1: entries[1], 2: content, 3: entries[3]}),
            Randomness(0),
            features="{}",
            timeout=5.0,
            absent=left_out.__setitem__,
        )
        assert {1, 3} <= set(registry.nodes)
        assert set(left_out) <= {2}
