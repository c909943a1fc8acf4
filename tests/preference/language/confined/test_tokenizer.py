"""Tokenizers that somebody else wrote: what they cost is bounded, and honest ones say the same."""

import gc
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from murmuration.client import store
from murmuration.client.store import UserStore
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_data
from murmuration.preference.features.encoders import EncoderFeatures
from murmuration.preference.kinds.language_reward import LanguageRewardModel
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import NOTHING, BaseSettings
from murmuration.preference.language.confined import tokenizer as module
from murmuration.preference.language.confined.tokenizer import (
    ConfinedTokenizer,
    confined,
    control_tokens,
    load_tokenizer,
    written,
)
from murmuration.preference.language.loading import contents_of
from murmuration.preference.language.tokens import TextTokens
from murmuration.research.strategies.choice.class_examples import PolicyClass
from murmuration.research.strategies.choice.policy_class import Policy

TEXTS = [
    "What now?",
    "Save it. Wait and compare prices, keep the old one!",
    "",
    "été ﷺ 漢字 \U0001f600 a\n\n b",
    json.dumps([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Loan?"}]),
]
ANSWERS = ["Keep it.", "buy today", "live on", "a", "loan ."]


@pytest.fixture(autouse=True)
def few_seconds(monkeypatch):
    """A limit that a test can wait for, once for all it is given."""
    monkeypatch.setattr(module, "SECONDS", 3)
    monkeypatch.setattr(module, "_refused", {})


@pytest.fixture
def nothing_is_left(tmp_path, monkeypatch):
    """No child is there afterwards, and no file that one made."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    places = dict.fromkeys(("HOME", "TMPDIR"), str(scratch))
    monkeypatch.setattr(module, "_ENVIRONMENT", {**module._ENVIRONMENT, **places})
    before = children()
    yield
    gc.collect()
    assert children() == before
    assert not [*scratch.iterdir()]


def children():
    """The processes that this one started."""
    me, result = os.getpid(), set()
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            about = status.read_text()
        except OSError:
            continue
        if int(about.rpartition(")")[2].split()[1]) == me:
            result.add(status.parent.name)
    return result


@pytest.fixture
def changed(language_model, tmp_path):
    """A function: the folder of a tiny model, of which a tokenizer's file is another."""

    def make(kind="gpt2", template=None, **parts):
        folder = tmp_path / "base"
        for name in Path(language_model(kind)).iterdir():
            folder.mkdir(exist_ok=True)
            (folder / name.name).write_bytes(name.read_bytes())
        whole = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps({**whole, **parts}))
        if template is not None:
            (folder / "chat_template.jinja").write_text(template)
        return folder

    return make


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(old, new):
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("kind", ["gpt2", "gpt2-chat", "bert", "llama", "qwen2"])
def test_an_honest_tokenizer_says_the_same_bit_by_bit(language_model, kind):
    folder = language_model(kind)
    own = load_tokenizer(folder, local=True)
    if own.pad_token_id is None:
        own.pad_token = own.eos_token
    with confined():
        other = load_tokenizer(folder, local=True)
    assert isinstance(other, ConfinedTokenizer)
    for name in ("pad_token_id", "eos_token_id", "cls_token_id", "sep_token_id", "all_special_ids",
                 "chat_template", "model_max_length", "is_fast"):  # fmt: skip
        assert getattr(other, name) == getattr(own, name), name
    assert (len(other), other.get_vocab()) == (len(own), own.get_vocab())
    assert other.serialized == module.serialized(own)
    one, two = (TextTokens(tokenizer, 200) for tokenizer in (own, other))
    for ended in (False, True):
        tokens, same = (texts(TEXTS, ANSWERS, ended=ended) for texts in (one, two))
        assert tokens.ids.numpy().tobytes() == same.ids.numpy().tobytes()
        assert (tokens.start_T == same.start_T).all()
        assert (tokens.second_T == same.second_T).all()
    assert one.ends == two.ends
    assert one.openings(TEXTS, 9) == two.openings(TEXTS, 9)
    assert (one.windows(TEXTS)[0].ids == two.windows(TEXTS)[0].ids).all()
    assert children()  # or `nothing_is_left` proves nothing


def test_texts_are_given_in_parts(language_model, monkeypatch):
    folder = language_model("bert")
    own, other = AutoTokenizer.from_pretrained(folder), ConfinedTokenizer(Path(folder))
    monkeypatch.setattr(module, "_PART", 2 * module.TEXT)
    options = {"truncation": "longest_first", "max_length": 12}
    assert other(TEXTS, ANSWERS, **options) == dict(own(TEXTS, ANSWERS, **options))
    assert other([]) == {"input_ids": []}


def refused(folder, text, match, response="Save it."):
    """The tokenizer is refused in one line, within seconds, and goes on being refused at once."""
    begun = time.monotonic()
    tokenizer = None
    with pytest.raises(InputError, match=match) as raised:
        tokenizer = ConfinedTokenizer(folder)
        TextTokens(tokenizer, 10**6)([text], [response])
    assert str(raised.value).startswith(f"{folder}: ")
    assert "\n" not in str(raised.value)
    assert time.monotonic() - begun < 60
    begun = time.monotonic()
    with pytest.raises(InputError, match=match):
        (tokenizer or ConfinedTokenizer(folder))(["a"])
    assert time.monotonic() - begun < 1


SLOW = r"tokenizing takes longer than \d seconds$"
LARGE = r"tokenizing takes more than [\d,]+ bytes of memory$|tokenizing makes too much of a text$"


@pytest.mark.usefixtures("nothing_is_left")
def test_a_polynomial_pattern(changed):
    """Each character of a long text looks at all that follow, many times: none breaks off."""
    letters = "bcdefghijklmnopqrstuvwxyz"
    slow = "|".join([*(f"a*{letter}" for letter in letters), "a"])
    refused(changed(pre_tokenizer=split(slow)), "a" * 20_000, SLOW)


@pytest.mark.usefixtures("nothing_is_left")
def test_a_chain_of_rules_of_which_each_doubles_a_text(changed, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 30)
    monkeypatch.setattr(module, "MEMORY", 1 << 30)
    chain = [replace("a", "aa") for _ in range(40)]
    refused(changed(normalizer={"type": "Sequence", "normalizers": chain}), "a", LARGE)


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("template", [
    "{% for i in range(10**5) %}{% for j in range(10**5) %}{% endfor %}{% endfor %}",
    "{% set a = namespace(n=3) %}{% for i in range(99) %}{% set a.n = a.n * a.n %}{% endfor %}",
], ids=["loops", "numbers"])  # fmt: skip
def test_a_chat_template_that_never_ends(changed, template):
    refused(changed("gpt2-chat", template), "What now?", SLOW)


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(
    "template", ["{{ 'a' * 10**11 }}", "{{ 'a' * 10**8 }}"], ids=["memory", "text"]
)
def test_a_chat_template_that_takes_all_memory(changed, template):
    refused(changed("gpt2-chat", template), "What now?", LARGE)


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(
    "template",
    ["{% for i in range(10**9) %}{% endfor %}", "{{ raise_exception(messages[0]) }}"],
    ids=["a range", "raises"],
)
def test_a_chat_template_that_breaks_off_quotes_nothing(changed, template):
    """Ranges are bounded by who runs templates; what these say themselves may be a user's text."""
    tokens = TextTokens(ConfinedTokenizer(changed("gpt2-chat", template)), 64)
    with pytest.raises(InputError, match=r"chat template breaks off at a text$"):
        tokens(["Whatever"], ["Save it."])


def test_a_pattern_that_breaks_off(changed):
    tokens = TextTokens(ConfinedTokenizer(changed(pre_tokenizer=split("(a+)+$"))), 64)
    with pytest.raises(InputError, match=r"tokenizer breaks off at a text$"):
        tokens(["What now?"], ["a" * 40 + "b"])
    assert len(tokens(["What now?"], ["Save it."]).ids)  # it goes on


@pytest.mark.usefixtures("nothing_is_left")
def test_a_vocabulary_that_takes_too_long_to_be_loaded(changed, monkeypatch):
    monkeypatch.setattr(module, "SECONDS", 1)
    words = {"[UNK]": 0} | {f"w{number}": number for number in range(1, 3_000_000)}
    folder = changed(model={"type": "WordLevel", "vocab": words, "unk_token": "[UNK]"})
    refused(folder, "a", SLOW)


def test_a_folder_without_one_is_refused_as_ever(changed):
    folder = changed()
    (folder / "tokenizer.json").write_text("{")
    with confined(), pytest.raises(InputError, match=r"--base .*: the folder gives no language"):
        LanguageBase(BaseSettings(str(folder), "head"))


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize(("kind", "system"), [("gpt2", ""), ("gpt2-chat", "save it")])
def test_a_node_computes_the_same_and_never_loads_what_it_was_named(
    language_model, crowd, monkeypatch, kind, system
):
    """A deployed one; a simulated one loads it as usual."""
    rows = load_data("reward", crowd)
    named = BaseSettings(language_model(kind), "head", system=system)
    settings = LanguageBase(named, weights=False).settings
    config = json.dumps(LanguageRewardModel(LanguageBase(settings, weights=False)).to_config())
    loaded = []
    honest = AutoTokenizer.from_pretrained
    monkeypatch.setattr(
        AutoTokenizer, "from_pretrained", lambda *a, **k: loaded.append(a) or honest(*a, **k)
    )
    simulated = UserStore(rows, 0, 1).examples(config, weights=False)
    assert len(loaded) == 1
    deployed = UserStore(rows, -1).examples(config, weights=False)
    assert len(loaded) == 1
    assert (simulated.tokens.ids == deployed.tokens.ids).all()
    assert (simulated.counts_U == deployed.counts_U).all()
    del deployed
    store._base.cache_clear()


def test_an_encoders_features_are_the_same(language_model):
    folder = language_model("bert")
    usual = EncoderFeatures(folder)(TEXTS, ANSWERS)
    with confined():
        other = EncoderFeatures(folder)
    assert isinstance(other._tokenizer, ConfinedTokenizer)
    np.testing.assert_array_equal(other(TEXTS, ANSWERS), usual)


def test_a_class_of_policies_is_confined_where_one_is_loaded_later(language_model, changed):
    """Each is loaded where it is needed, long after the class was."""
    folder = changed()
    (folder / "config.json").write_text((folder / "config.json").read_text() + " ")
    policies = [Policy("other", str(folder), contents_of(str(folder)).digest)]
    settings = BaseSettings(language_model("gpt2"), NOTHING, task="policy")
    usual = PolicyClass(settings, policies)
    with confined():
        other = PolicyClass(settings, policies)
    assert isinstance(other.reference.tokenizer, ConfinedTokenizer)
    assert isinstance(other.policy(0).tokenizer, ConfinedTokenizer)
    one, two = (each.scores([np.ones(1)], ["What now?"], ["Save it."]) for each in (usual, other))
    assert one.tobytes() == two.tobytes()


def test_a_chat_template_has_the_same_standing_clock_in_its_own_process(language_model, tmp_path):
    plain = load_tokenizer(str(language_model("gpt2-chat")), local=True)
    plain.chat_template = "{{ strftime_now('%d %b %Y') }} {{ lipsum() }}" + plain.chat_template
    plain.save_pretrained(tmp_path)
    with confined():
        alone = load_tokenizer(str(tmp_path), local=True)
    messages = [{"role": "user", "content": "What now?"}]
    text = written(plain, messages, invites=True)
    assert text.startswith("26 Jul 2024 ")
    assert written(alone, messages, invites=True) == text
    assert {*control_tokens(alone)} == {*control_tokens(plain)} >= {"[USER]", "[BOT]"}
