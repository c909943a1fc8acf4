"""An embedding has the same bits alone and in any company, computed or kept; nothing else is ever
believed."""

import sqlite3
import stat
from contextlib import closing

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murmuration.preference.features import frozen_states
from murmuration.preference.features.encoders import encoder_states
from murmuration.preference.features.frozen_states import FrozenStates, Pace, batches_of
from murmuration.preference.language.checkpoint import minilm_folder
from murmuration.preference.language.row_cache import FOLDER
from murmuration.privacy.mechanisms.parallel import one_core

transformers = pytest.importorskip("transformers")

CPU = torch.device("cpu")
WORDS = 50


def network(kind="bert", seed=0):
    """A small network with random weights, wide enough for real kernels."""
    torch.manual_seed(seed)
    shape = {"vocab_size": WORDS, "max_position_embeddings": 160}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=WORDS, n_positions=160, n_embd=64, n_layer=2, n_head=4
        )
        return transformers.GPT2Model(config).eval().requires_grad_(False)
    config = transformers.BertConfig(
        **shape, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=256
    )
    return transformers.BertModel(config).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def model():
    return network()


def written(texts):
    """As a tokenizer writes texts of these words."""
    return {
        "input_ids": texts,
        "token_type_ids": [[0] * (len(text) // 2) + [1] * (len(text) - len(text) // 2)
                           for text in texts],
        "attention_mask": [[1] * len(text) for text in texts],
    }  # fmt: skip


def random_texts(lengths, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.integers(0, WORDS, length).tolist() for length in lengths]


def embedded(model, texts, **more):
    return encoder_states(model, CPU, "mean", 160, **more).pooled(written(texts))


def alone(model, texts, pooling="mean"):
    """By the network itself, a text at a time, on one core."""
    rows = []
    with torch.no_grad(), one_core():
        for text in texts:
            inputs = {name: torch.tensor(rows) for name, rows in written([text]).items()}
            states_LD = model(**inputs).last_hidden_state[0]
            pooled_D = states_LD[0] if pooling == "cls" else states_LD.mean(0)
            rows.append(torch.nn.functional.normalize(pooled_D, dim=-1).numpy())
    return np.stack(rows)


@pytest.fixture
def batched(monkeypatch, computed):
    """Batches, however few texts there are; counts the texts of each that is read."""
    monkeypatch.setattr(frozen_states, "WORTH", 1)
    return computed


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    return tmp_path / "kept"


def afresh(model, texts, digest="weights"):
    """As a new process finds them."""
    return embedded(model, texts, digest=digest)


# The same bits.


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_the_same_bits_alone_and_together(batched, kind, pooling):
    model = network(kind)
    texts = random_texts([*[9] * 40, *[31] * 33, *[1, 2, 3, 7, 8] * 5, *range(4, 160, 7)])
    found = encoder_states(model, CPU, pooling, 160)
    if not found.isolates:
        pytest.skip("not on this machine")
    assert np.array_equal(found.pooled(written(texts)), alone(model, texts, pooling))
    assert max(batched) == 40  # there were batches


lengths = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mine=lengths, others=lengths, seed=st.integers(0, 2**31), first=st.booleans())
def test_company_moves_no_bit(model, batched, mine, others, seed, first):
    """Whether batches are isolated on this machine or not: then there are none."""
    own, company = random_texts(mine, seed), random_texts(others, seed + 1)
    together = [*own, *company] if first else [*company, *own]
    found = embedded(model, together)
    found = found[: len(own)] if first else found[len(company) :]
    assert np.array_equal(found, embedded(model, own))
    assert np.array_equal(found, alone(model, own))


def test_kernels_that_do_not_isolate_are_found_out(model, batched, monkeypatch):
    """As where a product with more rows is added up in another order."""

    class Mixing(torch.nn.Module):
        config = model.config

        def get_input_embeddings(self):
            return model.get_input_embeddings()

        def forward(self, input_ids, **more):
            states = model(input_ids=input_ids, **more)
            if len(input_ids) > 8:
                states.last_hidden_state[-1, 0, 3] += 1e-4
            return states

    texts = random_texts([12] * 30)
    found = encoder_states(Mixing(), CPU, "mean", 160)  # type: ignore[arg-type]
    assert not found.isolates
    batched.clear()
    assert np.array_equal(found.pooled(written(texts)), alone(model, texts))
    assert {*batched} == {1}


def test_whether_it_isolates_depends_on_no_text(model, monkeypatch):
    """Few texts are not worth the trial; many are, and what is tried out is always the same."""
    tried, plain = [], FrozenStates.together

    def isolating(self, given):  # on any processor: so that all shapes are tried
        tried.append(given["input_ids"])
        rows = [
            {name: row[text : text + 1] for name, row in given.items()}
            for text in range(len(given["input_ids"]))
        ]
        return np.concatenate([plain(self, row) for row in rows])

    monkeypatch.setattr(FrozenStates, "together", isolating)
    for _ in (1, 2):
        assert encoder_states(model, CPU, "mean", 160).isolates
    half = len(tried) // 2
    assert tried[:half] == tried[half:] and half > 8


def test_batches_are_of_one_length_and_no_larger_than_asked_for():
    texts = random_texts([9, 7, 9, 9, 200, 7])
    found = batches_of(written(texts), [0, 1, 2, 3, 4, 5], 20)
    assert found == [[4], [0, 2], [3], [1], [5]]
    assert batches_of(written(texts), [0, 3], 0) == [[0], [3]]


def test_each_distinct_text_is_read_once(model, batched):
    texts = random_texts([7, 8, 9])
    found = embedded(model, [*texts, *texts[::-1], *texts])
    assert np.array_equal(found, alone(model, [*texts, *texts[::-1], *texts]))
    embedded(model, [])
    read = encoder_states(model, CPU, "mean", 160)
    assert read.isolates in (True, False)
    batched.clear()
    read.pooled(written([*texts] * 5))
    assert sum(batched) == 3


def test_of_what_a_tokenizer_says_all_counts(model):
    """The same words, of which others are the response's."""
    text = random_texts([10])[0]
    said = {"input_ids": [text] * 2, "attention_mask": [[1] * 10] * 2,
            "token_type_ids": [[0] * 5 + [1] * 5, [0] * 6 + [1] * 4]}  # fmt: skip
    one, other = encoder_states(model, CPU, "mean", 160).pooled(said)
    assert not np.array_equal(one, other)


def test_nothing_to_read(model):
    found = embedded(model, [[], [3, 4], []])
    assert not found[[0, 2]].any() and found[1].any()


# Kept.


def test_a_second_time_nothing_is_read_and_bits_are_the_same(model, folder, batched):
    texts = random_texts(range(1, 60))
    first = afresh(model, texts)
    batched.clear()
    again = afresh(model, texts[::-1])
    assert not batched and np.array_equal(again[::-1], first)
    assert np.array_equal(first, alone(model, texts))


def test_only_what_is_new_is_read(model, folder, batched):
    texts = random_texts([9] * 20)
    afresh(model, texts[:12])
    batched.clear()
    found = afresh(model, texts)
    assert np.array_equal(found, alone(model, texts))
    assert encoder_states(model, CPU, "mean", 160).isolates is False or 8 in batched


def test_other_weights_or_pooling_have_their_own(model, folder):
    texts = random_texts(range(1, 9))
    afresh(model, texts)
    other = network(seed=1)
    assert np.array_equal(afresh(other, texts, digest="others"), alone(other, texts))
    first = encoder_states(model, CPU, "cls", 160, "weights").pooled(written(texts))
    assert np.array_equal(first, alone(model, texts, "cls"))


def test_weights_that_nobody_knows_are_not_kept(model, folder):
    afresh(model, random_texts([3]), digest="")
    assert not folder.exists()


def test_numbers_that_are_no_numbers_are_not_kept(model, folder):
    broken = network()
    with torch.no_grad():
        broken.embeddings.word_embeddings.weight[7] = float("nan")
    texts = [[1, 2], [7, 2]]
    for _ in range(2):
        found = afresh(broken, texts)
        assert np.isnan(found[1]).all() and np.isfinite(found[0]).all()
    (file,) = folder.iterdir()
    with closing(sqlite3.connect(file)) as rows:
        assert rows.execute("SELECT count(*) FROM rows").fetchone() == (1,)


def test_no_text_is_in_the_folder(model, folder):
    text = [17, 23, 42, 5, 11, 29, 31, 8]
    afresh(model, [text])
    (file,) = folder.iterdir()
    held = file.read_bytes() + file.name.encode()
    for kind in ("<i4", "<i8", "<u2", "u1", "<f4"):
        assert np.array(text[:3], kind).tobytes() not in held


def test_the_users_own_folder_or_none(model, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(FOLDER, "")
    afresh(model, [[1, 2]])
    assert not [*tmp_path.iterdir()]
    monkeypatch.delenv(FOLDER)
    afresh(model, [[1, 2]])
    own = tmp_path / ".cache" / "murmuration"
    assert len([*own.iterdir()]) == 1 and stat.S_IMODE(own.stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.chdir(tmp_path)
    afresh(model, [[1, 2]])
    assert not (tmp_path / "not").exists()


# How fast.


def test_pace_in_words():
    assert Pace(110, 4.0).since(Pace(10, 2.0)) == Pace(100, 2.0)
    assert Pace(100, 2.0).rate == "50 texts per second"
    assert Pace(5, 4.0).rate == "1.2 texts per second"


def test_the_log_is_told_now_and_then(caplog, monkeypatch):
    pace = Pace()
    with caplog.at_level("INFO", logger="murmuration.progress"):
        pace.add(10, frozen_states.SECONDS - 1, 10, 1_100)
        assert not caplog.text
        pace.add(90, 1.0, 100, 1_100)
        assert "computing features: 100 of 1,100 texts, 20 texts per second" in caplog.text
        caplog.clear()
        pace.add(1, 1.0, 101, 1_100)
        assert not caplog.text


@pytest.mark.skipif(minilm_folder() is None, reason="needs the extra minilm")
@pytest.mark.slow
def test_minilm_reads_the_same_in_any_company(batched):
    from murmuration.preference.features.encoders import EncoderFeatures

    features = EncoderFeatures("minilm")
    generator = np.random.default_rng(0)
    words = ["save", "spend", "it", "now", "never", "argue", "because", "money"]
    said = [" ".join(generator.choice(words, n)) for n in (*[4] * 90, *[21] * 40, *range(1, 90, 5))]
    together = features(["What now?"] * len(said), said)
    apart = np.concatenate([features(["What now?"], [text]) for text in said])
    assert np.array_equal(together, apart)
