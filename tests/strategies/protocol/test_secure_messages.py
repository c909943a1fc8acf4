"""What travels in secure aggregation, there and back, and whatever else may come instead."""

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from named import asked

from murmuration.privacy.mechanisms import grid
from murmuration.privacy.secure_aggregation import crypto, signing
from murmuration.privacy.secure_aggregation.party import (
    SEALED_BYTES,
    Opened,
    ProtocolError,
    PublicKeys,
    Shared,
)
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol import secure_messages as secure
from murmuration.strategies.protocol.messages import MalformedReply

SESSION = b"s" * 16
KEYS = [
    PublicKeys(crypto.public_key(bytes([i]) * 32), crypto.public_key(bytes([i + 100]) * 32))
    for i in range(3)
]
REQUEST = secure.MaskRequest(SESSION, {3: b"c" * SEALED_BYTES, 1: b"a" * SEALED_BYTES})


def carrying(record):
    return RecordDict({secure.RECORD: record})


def test_everything_comes_back_as_it_went():
    assert secure.session_of(secure.keys_request(SESSION)) == SESSION
    entries = [secure.Entry(KEYS[0], b"p" * 32, b"w" * 64), *map(secure.Entry, KEYS[1:])]
    for entry in entries:
        assert secure.read_keys(secure.keys_reply(entry)) == entry
    told = secure.Invitation(SESSION, 2, entries, b"a" * 32)
    assert secure.session_of(told.request()) == SESSION
    assert secure.Invitation.of(told.request()) == told
    shared = Shared({3: b"c" * SEALED_BYTES, 1: b"a" * SEALED_BYTES}, b"h" * 32)
    assert secure.read_shares(secure.shares_reply(shared), 2, 3) == shared
    assert secure.MaskRequest.of(carrying(REQUEST.record())) == REQUEST
    masked_L = np.array([1, 2**64 - 1], dtype=np.uint64)
    assert (secure.read_masked(secure.masked_reply(masked_L), 2) == masked_L).all()
    assert secure.read_arrived(secure.unmask_request(SESSION, [1, 3])) == [1, 3]
    opened = Opened({3: b"x" * 33, 1: b"y" * 33}, {2: b"z" * 33})
    assert secure.read_opened(secure.opened_reply(opened), [1, 3], [2]) == opened
    empty = Opened({1: b"y" * 33}, {})
    assert secure.read_opened(secure.opened_reply(empty), [1], []) == empty


@pytest.mark.parametrize("bits", [32, 63, 65, 0])
def test_another_modulus_is_refused(bits):
    record = REQUEST.record()
    assert record["modulus-bits"] == grid.MODULUS_BITS
    record["modulus-bits"] = bits
    with pytest.raises(ProtocolError, match=f"not 2\\^{bits}"):
        secure.MaskRequest.of(carrying(record))


@pytest.mark.parametrize(
    "change",
    [
        {"others": [1]},
        {"others": [1, 1]},
        {"sealed": b"short"},
        {"steps": [2.0**-30]},  # no request names a grid
        {"names": ["sum"]},
        {"session": 3},
    ],
)
def test_requests_to_mask_that_make_no_sense(change):
    record = REQUEST.record()
    record.update(change)
    with pytest.raises(ProtocolError):
        secure.MaskRequest.of(carrying(record))


@pytest.mark.parametrize(
    "read",
    [
        secure.read_keys,
        lambda content: secure.read_shares(content, 1, 3),
        lambda content: secure.read_masked(content, 2),
        lambda content: secure.read_opened(content, [1], []),
    ],
)
@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        carrying(ConfigRecord()),
        carrying(ConfigRecord({"sealing": 1, "masking": "x", "sealed": b"1", "seeds": b"12"})),
        carrying(ArrayRecord({"masked": Array(np.zeros(2))})),
        carrying(ArrayRecord({"masked": Array(np.zeros(3, dtype=np.uint64))})),
        carrying(ArrayRecord({"masked": Array("uint64", (2,), "numpy.ndarray", b"\x93NUMPY")})),
    ],
)
def test_whatever_a_node_may_send_instead(read, content):
    with pytest.raises(MalformedReply, match="not an answer to this session"):
        read(content)


@pytest.mark.parametrize("name", ["sealing", "masking"])
@pytest.mark.parametrize("point", [bytes(32), bytes([1]) + bytes(31)])
def test_a_key_that_would_end_everybodys_session_is_not_passed_on(name, point):
    """On a point of small order all agree on the same: every other node would refuse to go on."""
    keys = {"sealing": KEYS[0].sealing, "masking": KEYS[0].masking, name: point}
    with pytest.raises(MalformedReply, match="not an answer to this session"):
        secure.read_keys(carrying(ConfigRecord(keys)))


@pytest.mark.parametrize("word", [{"signer": b"short"}, {"signer": b"p" * 32}, {"signature": 3}])
def test_half_a_signature_is_none(word):
    keys = {"sealing": KEYS[0].sealing, "masking": KEYS[0].masking, **word}
    with pytest.raises(MalformedReply, match="not an answer to this session"):
        secure.read_keys(carrying(ConfigRecord(keys)))


def test_what_a_signature_says_is_these_keys_in_this_session():
    private = b"k" * 32
    word = signing.sign(private, secure.signed_text(SESSION, KEYS[0]))
    signer = signing.public_key(private)
    assert secure.Entry(KEYS[0], signer, word).signed_by(SESSION) == signer
    for entry, session in (
        (secure.Entry(KEYS[1], signer, word), SESSION),
        (secure.Entry(KEYS[0], signer, word), b"t" * 16),
        (secure.Entry(KEYS[0], signing.public_key(b"j" * 32), word), SESSION),
        (secure.Entry(KEYS[0], signer, word[:-1] + bytes([word[-1] ^ 1])), SESSION),
        (secure.Entry(KEYS[0]), SESSION),
        (secure.Entry(KEYS[0], b"\xff" * 32, word), SESSION),
    ):
        with pytest.raises(ProtocolError, match="nobody has signed"):
            entry.signed_by(session)


def test_a_sum_is_named_by_all_but_whom_each_node_is_asked_about():
    def named(theta=0.0, users=(0,), kind="train", **changes):
        parameters = {"strategy": "uls", "round": 1, "clip-norm": np.float64(0.1), **changes}
        model = messages.model_record(np.full(3, theta))
        content = messages.work_request(model, parameters, asked(users))
        return secure.about(kind, content)

    same = [named(), named(users=(1, 2)), named(**{"clip-norm": 0.1})]
    assert len({*same}) == 1
    others = [
        named(theta=1e-6),
        named(kind="evaluate"),
        named(round=2),
        named(round=True),
        named(round=1.0),
        named(round="1"),
        named(more=0),
    ]
    assert len({same[0], *others}) == 1 + len(others)
    with pytest.raises(ProtocolError, match="not a request for a sum"):
        secure.about("train", RecordDict())
    with pytest.raises(ProtocolError, match="no single value"):
        named(round=[1])


@pytest.mark.parametrize("read", [secure.session_of, secure.Invitation.of, secure.read_arrived])
@pytest.mark.parametrize("content", [RecordDict(), carrying(ConfigRecord({"roster": b"x" * 65}))])
def test_whatever_a_server_may_ask_instead(read, content):
    with pytest.raises(ProtocolError):
        read(content)
