"""Whatever one user's rows are, what a node makes of everybody else's stays the same.

A deployed node reads JSONL or Parquet in which one user's rows are anything at all: bytes, cells of
any kind, none, many, long. Compared is all that others have: rows, features, names, labels told,
and who of them is asked.
"""

import json

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from flwr.app import Context, RecordDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from language_models import model_on

from murmuration.client.answers import registry
from murmuration.client.hosting import host_for
from murmuration.client.labels.pre_randomized import stated_labels
from murmuration.preference.data.judgements import Judgements, LeftOut
from murmuration.preference.data.schema import Schema
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.strategies import registry as catalogue
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.users import Registry

ONE = "user one"  # whose rows are drawn
OTHERS = ("a", "user", "user p", "zoe")
SMALL = HashingFeatures(dimension=17)
FEATURES = json.dumps(SMALL.to_config())
SCHEMAS = {
    "pairs": Schema(max_judgements=6, max_characters=40),
    "top-1": Schema("top-1", 3, max_judgements=6, max_characters=40),
    "ranking": Schema("ranking", 3, max_judgements=6, max_characters=40),
    "randomized": Schema(labels="randomized", max_judgements=6, max_characters=40),
}

TEXT = st.text(max_size=45)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CELLS = {
    "prompt": ANYTHING,
    "chosen": ANYTHING,
    "rejected": ANYTHING,
    "tie": ANYTHING,
    "responses": ANYTHING | st.lists(st.sampled_from("xyzw"), min_size=2, max_size=5),
    "best": ANYTHING | st.integers(-1, 5),
    "ranking": ANYTHING | st.permutations([1, 2, 3]),
    "flip_probability": ANYTHING | st.floats(0.0, 0.6),
}
GOOD = st.fixed_dictionaries(
    {"prompt": st.just("p"), "chosen": st.just("x"), "rejected": st.just("y")}
)
ROW = st.fixed_dictionaries({}, optional=CELLS) | GOOD
ROWS = st.lists(ROW, max_size=3) | st.integers(6, 9).flatmap(lambda n: st.lists(GOOD, min_size=n))


def good(user, number, kind):
    row = {"user_id": user, "prompt": f"what of {number}?"}
    if kind in ("pairs", "randomized"):
        row |= {"chosen": "save it", "rejected": f"spend {number}"}
        more = {"flip_probability": RandomizedResponse(1.0).flip_probability}
        return row | (more if kind == "randomized" else {})
    row["responses"] = ["save it", f"spend {number}", "wait"][: 2 + number % 2]
    shown = len(row["responses"])
    return row | ({"best": number % 2} if kind == "top-1" else {"ranking": [*range(1, shown + 1)]})


def rows_of_others(kind):
    return [good(user, number, kind) for number in range(3) for user in OTHERS]


def lines(rows):
    return [json.dumps(row).encode() for row in rows]


def mixed(others, mine):
    """Rows of the one user between those of others, before and after."""
    found = list(others)
    for place, row in enumerate(mine):
        found.insert((5 * place) % (len(found) + 1), row)
    return found


def hosted(path, schema):
    """The node that has a file, and the host that answers for it."""
    declared = {"kind": schema.kind, "responses": schema.responses, "labels": schema.labels}
    limits = {"max-judgements": schema.max_judgements, "max-characters": 40}
    node_config = {"data": str(path), "public-items": True, **declared, **limits}
    host = host_for(Context(1, 1, node_config, RecordDict(), {}))
    store = host.store()
    return store, type(host)(**{**vars(host), "store": lambda: store})


def sums(store, users_S, strategy, model):
    """What a node half says of some users, at a model that is not zero."""
    theta_D = np.linspace(-1.0, 1.0, SMALL.dimension, dtype=np.float32)
    parameters = {
        "strategy": strategy, "round": 2, "group-size": 2, "clip-norm": 0.1, "model": model,
        "probability": 0.5, "length": 0.0, "local-steps": 2, "local-rate": 0.5, "bit-noise": 1.0,
    }  # fmt: skip
    work = messages.TrainRequest({"theta": theta_D, "centre": theta_D * 0}, parameters, users_S)
    examples = store.examples(FEATURES)
    return catalogue.node_halves()[strategy].client_update(
        examples, work, store.keys_U[users_S], Randomness(3)
    )


def seen(path, kind):
    """All that a node has of others than the one user, and the sums over these alone."""
    schema = SCHEMAS[kind]
    store, host = hosted(path, schema)
    model = "btl" if kind in ("pairs", "randomized") else "plackett-luce"
    request = messages.registry_request(b"salt", True, FEATURES, model=model, schema=schema)
    entry = messages.read_registry(registry(request, host))
    ids = store.judgements.user_ids
    assert entry.keys_U.tolist() == [user_key(user, b"salt") for user in ids]
    others_S = np.array([ids.index(user) for user in OTHERS])
    mine, examples = store.judgements.select(others_S), store.examples(FEATURES).select(others_S)
    line = Registry.of({1: entry})
    asked = [line.keys_N[PoissonSampler(0.5).draw(line.keys_N, Randomness(9), t)] for t in range(3)]
    keys_S = set(entry.keys_U[others_S].tolist())
    return {
        "rows": (mine.prompts, mine.responses, mine.y_R.tolist(), mine.start_U.tolist()),
        "kind": (mine.kind, mine.most_responses, mine.randomized, entry.randomized),
        "names": entry.keys_U[others_S].tolist(),
        "counts": entry.counts_U[others_S].tolist(),
        "features": (examples.width, examples.x_RD.tolist(), examples.y_R.tolist()),
        "asked": [sorted(keys_S & set(cohort.tolist())) for cohort in asked],
        "sums": {
            name: {key: total.tolist() for key, total in sums(store, others_S, name, model).items()}
            for name in ("uls", "dp-fedavg", "els", "counts", "nonprivate")
        },
    }


@pytest.mark.parametrize("kind", SCHEMAS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_cells_of_any_kind(tmp_path_factory, kind, data):
    folder = tmp_path_factory.mktemp("node")
    others = lines(rows_of_others(kind))
    mine = [json.dumps({"user_id": ONE, **row}).encode() for row in data.draw(ROWS)]
    (folder / "with.jsonl").write_bytes(b"\n".join(mixed(others, mine)))
    (folder / "without.jsonl").write_bytes(b"\n".join(others))
    assert seen(folder / "with.jsonl", kind) == seen(folder / "without.jsonl", kind)


@pytest.mark.parametrize("kind", SCHEMAS)
@given(data=st.data())
def test_bytes(tmp_path_factory, kind, data):
    """A line is one user's, or nobody's; it ends where it ends, whatever it begins."""
    folder = tmp_path_factory.mktemp("node")
    others = lines(rows_of_others(kind))
    whole = json.dumps(good(ONE, 1, kind)).encode()
    cut = st.integers(0, len(whole)).map(lambda n: whole[:n])
    flipped = st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)).map(
        lambda pair: whole[: pair[0]] + bytes([pair[1]]) + whole[pair[0] + 1 :]
    )
    named = st.binary(max_size=30).map(lambda found: b'{"user_id": "user one", "prompt": "' + found)
    found = data.draw(st.lists(st.binary(max_size=60) | cut | flipped | named, max_size=5))
    mine = [line.replace(b"\n", b"") for line in found]
    (folder / "with.jsonl").write_bytes(b"\n".join(mixed(others, mine)))
    (folder / "without.jsonl").write_bytes(b"\n".join(others))
    assert seen(folder / "with.jsonl", kind) == seen(folder / "without.jsonl", kind)


@given(cell=st.binary(max_size=20))
def test_bytes_in_a_parquet_cell(tmp_path_factory, cell):
    folder = tmp_path_factory.mktemp("node")
    rows = rows_of_others("pairs")

    def write(name, found):
        columns = {}
        for field in ("user_id", "prompt", "chosen", "rejected"):
            offsets = np.cumsum([0, *(len(row[field]) for row in found)], dtype=np.int32)
            data = pyarrow.py_buffer(b"".join(row[field] for row in found))
            # As another program might have written it: nobody has looked whether it is text.
            columns[field] = pyarrow.StringArray.from_buffers(
                len(found), pyarrow.py_buffer(offsets), data
            )
        pyarrow.parquet.write_table(pyarrow.table(columns), folder / name)

    others = [{field: text.encode() for field, text in row.items()} for row in rows]
    mine = {**others[0], "user_id": ONE.encode(), "chosen": cell}
    write("with.parquet", mixed(others, [mine, {**mine, "prompt": b"\xff"}]))
    write("without.parquet", others)
    assert seen(folder / "with.parquet", "pairs") == seen(folder / "without.parquet", "pairs")


def test_who_has_nothing_of_use_stays_hosted(tmp_path):
    path = tmp_path / "f.jsonl"
    bad = {"user_id": ONE, "prompt": "", "chosen": "x", "rejected": "y"}
    path.write_bytes(b"\n".join(lines([bad, *rows_of_others("pairs")])))
    store, _ = hosted(path, SCHEMAS["pairs"])
    assert ONE in store.judgements.user_ids
    one = store.judgements.user_ids.index(ONE)
    assert store.judgements.counts_U[one] == 0
    for strategy in ("uls", "dp-fedavg", "els", "nonprivate"):
        alone = sums(store, np.array([one]), strategy, "btl")
        assert not alone["sum"].any(), strategy


def test_an_endless_line_is_nobodys(tmp_path, monkeypatch):
    from murmuration.preference.data.files import reading
    from murmuration.preference.data.files.columnar import FileBudget

    monkeypatch.setattr(reading, "BUDGET", FileBudget(line_bytes=500))
    others = lines(rows_of_others("pairs"))
    long = json.dumps({"user_id": ONE, "prompt": "x" * 5_000}).encode()
    (tmp_path / "with.jsonl").write_bytes(b"\n".join(mixed(others, [long, long])))
    (tmp_path / "without.jsonl").write_bytes(b"\n".join(others))
    assert seen(tmp_path / "with.jsonl", "pairs") == seen(tmp_path / "without.jsonl", "pairs")


class Odd(HashingFeatures):
    """A feature map that has none for some texts, and cannot be asked about others."""

    def __call__(self, prompts, responses):
        assert "refused" not in responses
        phi_RD = super().__call__(prompts, responses)
        phi_RD[[text == "nan" for text in responses], 3] = np.nan
        return phi_RD

    def unreadable(self, prompts, responses):
        return ["a refused text" if text == "refused" else "" for text in responses]


@given(st.lists(st.sampled_from(["nan", "refused", "x"]), max_size=4))
def test_texts_without_features(texts):
    rows = rows_of_others("pairs")
    mine = [{**good(ONE, n, "pairs"), "chosen": text} for n, text in enumerate(texts)]
    data, left_out = Judgements.from_rows(mixed(rows, mine)), LeftOut("isolate")
    found = model_on(Odd(dimension=17)).examples(data, left_out)
    alone = model_on(Odd(dimension=17)).examples(Judgements.from_rows(rows), left_out)
    others_S = np.array([data.user_ids.index(user) for user in alone_order(rows)])
    assert torch.equal(found.select(others_S).x_RD, alone.x_RD)
    assert torch.equal(found.select(others_S).start_U, alone.start_U)
    assert torch.isfinite(found.x_RD).all()
    assert left_out.rows == sum(text != "x" for text in texts)
    if ONE in data.user_ids:
        assert found.counts_U[data.user_ids.index(ONE)] == texts.count("x")


def alone_order(rows):
    return Judgements.from_rows(rows).user_ids


FLIP = RandomizedResponse(1.0).flip_probability


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, FLIP, 0.1, 0.499999999999, 1e-300]), st.booleans()),
        max_size=4,
    ),
    st.sampled_from([0, 3]),
)
def test_labels_that_came_randomized(mine, cap):
    """A tie, several rates, too little protection, too many: that user tells nothing."""
    schema, promise = Schema(labels="randomized"), LabelPromise(4.0, cap=cap)
    rows = rows_of_others("randomized")
    odd = [
        {**good(ONE, n, "randomized"), "flip_probability": flip, "tie": tie}
        for n, (flip, tie) in enumerate(mine)
    ]
    data, left_out = Judgements.from_rows([*odd, *rows], schema=schema), LeftOut("isolate")
    told = stated_labels(data, promise, left_out)
    alone = stated_labels(Judgements.from_rows(rows, schema=schema), promise)
    first = told.start_U[1] if mine else 0
    assert told.items_N[first:].tolist() == alone.items_N.tolist()
    assert told.answers_N[first:].tolist() == alone.answers_N.tolist()
    assert told.per_label_U[bool(mine) :].tolist() == alone.per_label_U.tolist()
    assert left_out.rows in (0, 1)
    assert first in (0, len(mine))
