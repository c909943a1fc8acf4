"""Responses that a model writes: what it says, drawn as asked, whatever stands beside them."""

import json
import shutil

import numpy as np
import pytest
import torch
from language_models import saved_model
from language_models import tokenizer as make_tokenizer

from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.language import generation
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.generation import (
    NotFiniteError,
    PublicSeed,
    Sampling,
    Writer,
)
from murmuration.preference.language.likelihood import load_next_token, load_scorer
from murmuration.preference.language.tokens import TextTokens
from murmuration.preference.reward import RewardModel

PROMPTS = [
    "What now?", "Save it, or spend all of it today?", "Loan?", "Take the old one and wait?",
    "Buy it today! Put some aside, compare prices, and keep the old one on.", "What now?",
]  # fmt: skip


def alone(model, prompt, sampling, uniforms, limit=64):
    """Tokens by transformers' forward pass alone, one text at a time and without a cache."""
    network, tokenizer = model[0].eval(), model[1].tokenizer
    if tokenizer.chat_template:
        text = f"[USER] {prompt} [BOT] "
    else:
        text = f"{prompt}\n\n"
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = ids[len(ids) - min(len(ids), limit - sampling.max_new_tokens) :]
    found = []
    for uniform in uniforms:
        with torch.no_grad():
            logits = network(input_ids=torch.tensor([ids + found])).logits[0, -1].double().numpy()
        if sampling.temperature:
            chances = np.exp((logits - logits.max()) / sampling.temperature)
            chances /= chances.sum()
            order = np.argsort(-chances) if sampling.top_p < 1 else np.arange(len(chances))
            if sampling.top_p < 1:
                kept = order[: 1 + np.searchsorted(np.cumsum(chances[order]), sampling.top_p)]
                chances = chances[kept] / chances[kept].sum()
                order = kept
            token = int(order[np.searchsorted(np.cumsum(chances), uniform)])
        else:
            token = int(logits.argmax())
        if token == tokenizer.eos_token_id:
            break
        found.append(token)
    return tokenizer.decode(found).strip()


@pytest.mark.parametrize("kind", ["gpt2", "gpt2-chat", "llama", "bloom", "mistral", "opt"])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(0.0, max_new_tokens=12),
        Sampling(1.0, max_new_tokens=12),
        Sampling(0.7, top_p=0.8, max_new_tokens=12),
    ],
    ids=["greedy", "plain", "top-p"],
)
def test_many_are_written_as_each_would_be_alone_and_without_a_cache(
    language_model, kind, sampling
):
    model = load_next_token(language_model(kind))
    found = Writer(*model).write(PROMPTS, sampling, seed=3)
    for place, prompt in enumerate(PROMPTS):
        uniforms = np.random.default_rng([3, place]).random(12)
        assert found[place] == alone(model, prompt, sampling, uniforms)
    assert any(found)


@pytest.mark.parametrize("kind", ["gpt2", "gpt2-chat", "llama", "bloom", "mistral", "opt"])
def test_a_prompt_that_is_asked_several_times_in_a_row_is_read_once(
    language_model, kind, monkeypatch
):
    model, sampling = load_next_token(language_model(kind)), Sampling(0.7, max_new_tokens=8)
    prompts, read = [prompt for prompt in PROMPTS for _ in range(4)], []
    honest = Writer._read_once

    def spied(*given):
        once = honest(*given)
        read.append(len(given[2]) if once else 0)
        return once

    monkeypatch.setattr(Writer, "_read_once", spied)
    written = Writer(*model).write(prompts, sampling, seed=3)
    for place, prompt in enumerate(prompts):
        uniforms = np.random.default_rng([3, place]).random(8)
        assert written[place] == alone(model, prompt, sampling, uniforms)
    assert read == [len(prompts)]
    assert len(set(written)) > len(PROMPTS)


def test_prompts_without_a_token_before_the_last_are_read_with_their_answers(language_model):
    writer, single = Writer(*load_next_token(language_model("llama"))), [[9]] * 4
    written = writer.continue_tokens([*single, *[[8, 9]] * 6], Sampling(1.0, max_new_tokens=6), 1)
    assert written[:4] == writer.continue_tokens(single, Sampling(1.0, max_new_tokens=6), 1)


@pytest.mark.parametrize(("times", "window"), [(1, None), (4, None), (4, 6)])
def test_states_that_writing_has_are_those_of_the_texts(language_model, tmp_path, times, window):
    """Prompts are read each time where the cache forgets what is outside of a window."""
    pytest.importorskip("peft")
    path = str(language_model("mistral" if window else "llama"))
    if window:
        shutil.copytree(path, tmp_path / "windowed")
        path = str(tmp_path / "windowed")
        config = tmp_path / "windowed" / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": window}))
    base = LanguageBase(BaseSettings(path, task="policy", rank=2, layers="last:1",
                                     targets="all-linear"))  # fmt: skip
    base.put(0.5 * base.random_theta())
    base.texts.ends[:] = range(8, 14)  # more than one word ends what is written
    writer = Writer(base.model, base.texts, base.noting)
    prompts = [prompt for prompt in PROMPTS[:-1] for _ in range(times)]
    sampling = Sampling(1.0, max_new_tokens=9)
    openings = base.texts.openings(prompts, 9)
    tokens = writer.continue_tokens(openings, sampling, 5, ended=True)
    assert tokens == Writer(base.model, base.texts).continue_tokens(
        openings, sampling, 5, ended=True
    )
    assert len({len(ids) for ids in tokens}) > 1  # some ended
    assert writer._reads_once == (window is None)
    assert len(writer.states) == len(prompts)
    for opening, ids, state_LH in zip(openings, tokens, writer.states, strict=True):
        whole_RL = torch.tensor([[*opening, *ids]])
        expected = base.lower_states(base.inputs_of(whole_RL, torch.ones_like(whole_RL), None))
        torch.testing.assert_close(state_LH, expected[0, :-1], atol=1e-5, rtol=1e-5)
        assert not state_LH.is_inference()


@pytest.fixture
def writer(language_model):
    return Writer.load(language_model("gpt2"))


SHORT = Sampling(max_new_tokens=8)


def test_a_seed_is_all_that_chance_is(writer):
    first = writer.write(PROMPTS, SHORT, seed=1)
    before = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    torch.manual_seed(99)
    assert writer.write(PROMPTS, SHORT, seed=1) == first
    torch.set_rng_state(before[0])
    writer.write(PROMPTS, SHORT, seed=1)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert repr(np.random.get_state()) == before[1]  # noqa: NPY002
    assert writer.write(PROMPTS, SHORT, seed=2) != first
    assert writer.write(PROMPTS, SHORT, seed=(1, 0)) != writer.write(PROMPTS, SHORT, seed=(1, 1))


def test_equal_prompts_get_responses_of_their_own_in_their_order(writer):
    found = writer.write(["What now?"] * 300, SHORT)
    assert len(set(found)) > 100
    mixed = writer.write([*["What now?"] * 20, *PROMPTS], SHORT)
    assert mixed[:20] == found[:20]


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (3.0, 1.0), (3.0, 0.6)])
def test_tokens_are_drawn_with_their_chances(temperature, top_p):
    generator, draws = np.random.default_rng(0), 50_000
    logits = generator.normal(size=40).astype(np.float32)
    chances = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    order = np.argsort(-chances)
    kept = order[: 1 + np.searchsorted(np.cumsum(chances[order]), top_p)]
    expected = np.zeros(40)
    expected[kept] = chances[kept] / chances[kept].sum()
    found = Sampling(temperature, top_p, 1).draw(
        torch.from_numpy(logits).expand(draws, -1), torch.from_numpy(generator.random(draws))
    )
    counts = np.bincount(found.numpy(), minlength=40)
    assert counts[expected == 0].sum() == 0
    spread = np.sqrt(draws * expected * (1 - expected)) + 1e-9
    assert np.abs((counts - draws * expected) / spread).max() < 4.5


@pytest.mark.parametrize("sampling", [Sampling(0.7), Sampling(0.7, top_p=0.8)])
def test_rows_are_drawn_alike_however_many_there_are_at_a_time(sampling, monkeypatch):
    generator = np.random.default_rng(1)
    logits = torch.from_numpy(generator.normal(size=(37, 50)).astype(np.float32)) * 3
    uniforms = torch.from_numpy(generator.random(37))
    whole = sampling.draw(logits, uniforms)
    monkeypatch.setattr(generation, "_CHANCES", {"cpu": 250})  # five rows
    assert torch.equal(sampling.draw(logits, uniforms), whole)
    monkeypatch.setattr(generation, "_CHANCES", {"cpu": 7})  # less than one
    assert torch.equal(sampling.draw(logits, uniforms), whole)


@pytest.mark.parametrize("sampling", [SHORT, Sampling(0.7, top_p=0.8, max_new_tokens=8)])
@pytest.mark.parametrize("nothing", [torch.nan, torch.inf])
def test_of_a_model_that_is_not_finite_nothing_is_drawn(language_model, sampling, nothing):
    model = load_next_token(language_model("gpt2"))
    torch.nn.init.constant_(model[0].get_output_embeddings().weight, nothing)
    with pytest.raises(NotFiniteError, match="nothing finite"):
        Writer(*model).write(PROMPTS, sampling)


def test_of_zero_chance_nothing_is_drawn_on_the_edges():
    logits = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf]])
    for uniform, token in ((0.0, 0), (0.4999, 0), (0.5, 2), (1 - 2**-53, 2)):
        for sampling in (Sampling(), Sampling(top_p=0.999)):
            uniforms = torch.tensor([uniform], dtype=torch.float64)
            assert sampling.draw(logits, uniforms).tolist() == [token]


def test_the_front_of_a_long_prompt_is_cut(writer, language_model):
    long = " ".join(["save"] * 80 + ["What now?"])
    sampling = Sampling(0.0, max_new_tokens=20)
    uniforms = np.zeros(20)
    found = writer.write([long, "Loan?"], sampling)
    assert found[0] == alone(load_next_token(language_model("gpt2")), long, sampling, uniforms)
    with pytest.raises(InputError, match="--max-new-tokens"):
        writer.write(["Loan?"], Sampling(max_new_tokens=64))
    assert len(writer.write(["Loan?"], Sampling(max_new_tokens=63))) == 1


def test_what_a_checkpoint_says_of_generation_is_not_taken(language_model, tmp_path, writer):
    path = tmp_path / "picky"
    network = load_next_token(language_model("gpt2"))[0]
    network.save_pretrained(path)
    writer._texts.tokenizer.save_pretrained(path)
    about = json.loads((path / "generation_config.json").read_text())
    about |= {"repetition_penalty": 50.0, "suppress_tokens": list(range(8, 20)), "max_length": 3}
    (path / "generation_config.json").write_text(json.dumps(about))
    picky = Writer.load(path)
    assert picky._network.generation_config.repetition_penalty == 50
    assert picky.write(PROMPTS, SHORT) == writer.write(PROMPTS, SHORT)
    assert picky._network.generation_config.repetition_penalty == 50


@pytest.mark.parametrize("train", ["lora", "full"])
def test_a_saved_run_writes_what_it_finds_likely(language_model, tmp_path, train):
    path = language_model("gpt2")
    saved_model(tmp_path / "m", path, train, scale=1.0, task="sft")
    scorer, likeliest = load_scorer(tmp_path / "m"), Sampling(0.0, max_new_tokens=12)
    found = Writer.load(tmp_path / "m").write(PROMPTS, likeliest)
    of_base = Writer.load(path).write(PROMPTS, likeliest)
    assert found != of_base
    assert scorer.score(PROMPTS, found).sum() > scorer.score(PROMPTS, of_base).sum()


def test_a_chat_template_tells_where_a_response_ends():
    tokenizer = make_tokenizer(chat=True)
    assert TextTokens(tokenizer, 64).ends == [tokenizer.eos_token_id]
    ended = "{{ m.content }}{% if m.role != 'user' %} [USER] {% endif %}"
    template = str(tokenizer.chat_template).replace("{{ m.content }} ", ended)
    tokenizer.chat_template = template
    ends = TextTokens(tokenizer, 64).ends
    assert ends == [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("[USER]")]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"temperature": -0.1}, "--temperature"),
        ({"temperature": float("nan")}, "--temperature"),
        ({"temperature": float("inf")}, "--temperature"),
        ({"top_p": 0.0}, "--top-p"),
        ({"top_p": 1.1}, "--top-p"),
        ({"max_new_tokens": 0}, "--max-new-tokens"),
    ],
)
def test_sampling_that_cannot_be(values, said):
    with pytest.raises(InputError, match=said):
        Sampling(**values)


def test_calls_that_cannot_be(writer):
    with pytest.raises(InputError, match="--seed"):
        writer.write(PROMPTS, SHORT, seed=-1)
    with pytest.raises(InputError, match="list of prompts"):
        writer.write("What now?")


def test_what_writes_nothing_is_refused(language_model, tmp_path):
    with pytest.raises(InputError, match="no causal language model"):
        Writer.load(language_model("bert"))
    saved_model(tmp_path / "reward", language_model("gpt2"))
    with pytest.raises(InputError, match="says no next token"):
        Writer.load(tmp_path / "reward")
    RewardModel(np.ones(9), HashingFeatures(dimension=9)).save(tmp_path / "linear")
    with pytest.raises(InputError, match="no language model"):
        Writer.load(tmp_path / "linear")
    with pytest.raises(InputError, match="no such folder"):
        Writer.load(tmp_path / "none")


def test_a_public_seed_reaches_no_noise_or_cohort(tmp_path):
    """What align, respond and winrate are seeded with cannot seed a private run: not by type."""
    from murmuration import train
    from murmuration.privacy.mechanisms.randomness import Randomness
    from murmuration.strategies.config import RunConfig

    seed = PublicSeed(3)
    with pytest.raises(TypeError, match="a whole number"):
        Randomness(seed)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InputError, match="'seed' must be a int"):
        train(seed=seed, out=tmp_path / "run")
    with pytest.raises((TypeError, InputError)):
        RunConfig(seed=seed)  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match="--seed must not be negative"):
        PublicSeed(-1)


def test_responses_that_do_not_end_are_counted(writer):
    writer.write(PROMPTS, SHORT, seed=1)
    openings = writer._texts.openings(PROMPTS, SHORT.max_new_tokens)
    tokens = writer.continue_tokens(openings, SHORT, 1, ended=True)
    broke_off = sum(ids[-1] not in writer._texts.ends for ids in tokens)
    assert writer.cut_off == broke_off > 0
    assert all(
        len(ids) == SHORT.max_new_tokens for ids in tokens if ids[-1] not in writer._texts.ends
    )
    writer._texts.ends[:] = range(len(writer._texts.tokenizer))
    writer.write(PROMPTS, SHORT, seed=1)
    assert writer.cut_off == broke_off  # whatever is said ends there
