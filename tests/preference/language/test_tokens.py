"""Texts as tokens: what is written around them, what is cut, and what is refused."""

import numpy as np
import pytest
from tokenizers import Regex, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from murmuration.preference.data.errors import InputError
from murmuration.preference.features import mapped_rows
from murmuration.preference.language.confined.tokenizer import load_tokenizer
from murmuration.preference.language.row_cache import FOLDER
from murmuration.preference.language.tokens import TextTokens, length_batches


@pytest.fixture
def tokens_of(language_model):
    """A function: the tokens of texts, as words, for a tiny model's tokenizer."""

    def tokens(kind, prompts, responses, limit=64, system=""):
        tokenizer = AutoTokenizer.from_pretrained(language_model(kind))
        found = TextTokens(tokenizer, limit, system)(prompts, responses)
        words = [
            tokenizer.convert_ids_to_tokens(found.ids[a:b].tolist())
            for a, b in zip(found.start_T[:-1], found.start_T[1:], strict=True)
        ]
        return found, [" ".join(text) for text in words]

    return tokens


def test_an_encoder_reads_a_pair(tokens_of):
    found, (text,) = tokens_of("bert", ["What now?"], ["Save it."])
    assert text == "[CLS] what now ? [SEP] save it . [SEP]"
    assert found.segments(np.array([0]), 9).tolist() == [[0] * 5 + [1] * 4]


TURNS = "\n\nHuman: Now?\n\nAssistant: It.\n\nHuman: What now?"
IN_TURNS = "[USER] now ? [BOT] it . [USER] what now ? [BOT] save it ."


@pytest.mark.parametrize(
    ("kind", "prompt", "expected"),
    [
        ("gpt2", "What now?", "what now ? save it ."),
        ("gpt2-chat", "What now?", "[USER] what now ? [BOT] save it ."),
        ("gpt2-chat", TURNS, IN_TURNS),
        ("gpt2-chat", f"{TURNS}\n\nAssistant:", IN_TURNS),
    ],
)
def test_a_causal_model_reads_prompt_and_response_by_its_chat_template(
    tokens_of, kind, prompt, expected
):
    assert tokens_of(kind, [prompt], ["Save it."])[1] == [expected]


def test_a_template_that_refuses_turns_gets_one_message(language_model):
    texts = TextTokens(AutoTokenizer.from_pretrained(language_model("gpt2-chat")), 99)
    strict = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    texts.tokenizer.chat_template = strict + str(texts.tokenizer.chat_template)
    heads, _ = texts._exchanges(["\n\nSystem: a\n\nHuman: b", TURNS], ["c", "c"])
    assert "System: a" in heads[0]
    assert "Human" not in heads[1]


@pytest.mark.parametrize(
    ("kind", "limit", "expected"),
    [("gpt2", 5, "now ? save it ."), ("bert", 7, "[CLS] ? [SEP] save it . [SEP]")],
)
def test_prompts_are_cut_in_front_and_responses_never(tokens_of, kind, limit, expected):
    found, (text, short) = tokens_of(kind, ["What now?", ""], ["Save it.", "It."], limit)
    assert text == expected
    assert found.cut == 1
    assert "it ." in short


@pytest.mark.parametrize(("kind", "limit"), [("gpt2", 2), ("gpt2-chat", 2), ("bert", 5)])
def test_a_response_that_does_not_fit_is_refused(tokens_of, kind, limit):
    with pytest.raises(InputError, match=r"row 2: a response of \d tokens .* --max-tokens"):
        tokens_of(kind, ["", ""], ["it", "Save it."], limit)


def test_a_batch_is_filled_up_on_the_right(tokens_of):
    found, _ = tokens_of("gpt2", ["What now?", ""], ["Save it.", "It."])
    ids_RL, there_RL = found.batch(np.array([1, 0]), pad=0)
    assert ids_RL.shape == (2, 6)
    assert there_RL.sum(1).tolist() == [2, 6]
    assert (ids_RL[0, 2:] == 0).all()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("gpt2", "what now ? save it . [EOS]"), ("gpt2-chat", "[USER] what now ? [BOT] save it .")],
)
def test_an_end_is_written_where_it_is_learnt_unless_a_template_does(
    language_model, kind, expected
):
    tokenizer = AutoTokenizer.from_pretrained(language_model(kind))
    found = TextTokens(tokenizer, 64)(["What now?"], ["Save it."], ended=True)
    assert " ".join(tokenizer.convert_ids_to_tokens(found.ids.tolist())) == expected
    assert found.second_T[0] == expected.split().index("save")


@pytest.mark.parametrize("kind", ["gpt2", "gpt2-chat", "bert"])
@pytest.mark.parametrize("ended", [False, True])
def test_which_responses_fit(language_model, kind, ended):
    """Those that are no error, and only these."""
    tokens = TextTokens(AutoTokenizer.from_pretrained(language_model(kind)), 12)
    responses = ["save it " * n for n in range(1, 9)]
    fits = tokens.fits(["What now?"] * 8, responses, ended=ended)
    assert 0 < fits.sum() < 8
    for response, fit in zip(responses, fits, strict=True):
        if fit:
            tokens(["What now?"], [response], ended=ended)
        else:
            with pytest.raises(InputError, match="does not fit"):
                tokens(["What now?"], [response], ended=ended)
    assert tokens.fits([], []).tolist() == []


def test_windows_of_texts_by_themselves(language_model):
    tokenizer = AutoTokenizer.from_pretrained(language_model("gpt2"))
    found, windows_R = TextTokens(tokenizer, 4).windows(["Save it.", "Wait and compare it.", "it"])
    words = tokenizer.convert_ids_to_tokens(found.ids.tolist())
    parts = [" ".join(words[a:b]) for a, b in zip(found.start_T, found.start_T[1:], strict=False)]
    assert parts == ["save it . [EOS]", "wait and compare it", "it . [EOS]", "it [EOS]"]
    assert windows_R.tolist() == [1, 2, 1]
    tokenizer.eos_token = None
    found, windows_R = TextTokens(tokenizer, 4).windows(["it", "Save it."])
    assert windows_R.tolist() == [0, 1]
    assert TextTokens(tokenizer, 4).windows([])[1].tolist() == []
    with pytest.raises(InputError, match="--max-tokens must be at least 2"):
        TextTokens(tokenizer, 1).windows(["Save it."])


def test_a_tokenizer_whose_pattern_goes_back_and_forth_for_ever_is_refused(language_model):
    """The library gives up, by what is no ``Exception``: it would end whoever serves others."""
    tokenizer = AutoTokenizer.from_pretrained(language_model("gpt2"))
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    texts = TextTokens(tokenizer, 64)
    for prompt, response in (("What now?", "a" * 40 + "b"), ("a" * 40 + "b", "Save it.")):
        with pytest.raises(InputError, match=r"tokenizer breaks off at a text$"):
            texts([prompt], [response])
    with pytest.raises(InputError, match=r"tokenizer breaks off at a text$"):
        texts.windows(["a" * 40 + "b"])


@pytest.mark.parametrize("most", [1, 7, 20, 10**6])
def test_batches_of_texts_of_about_equal_length(most):
    lengths_T = np.random.default_rng(0).integers(1, 12, 50)
    batches = list(length_batches(lengths_T, most))
    assert sorted(np.concatenate(batches).tolist()) == list(range(50))
    assert all(len(b) == 1 or len(b) * lengths_T[b].max() <= most for b in batches)
    assert (np.diff(np.concatenate([lengths_T[b] for b in batches])) >= 0).all()
    assert list(length_batches(lengths_T[:0], most)) == []


# Tokens that were made before: the same, or made anew; and nothing is kept unasked.


PROMPTS = ["What now?", "What now?", "And then, when the shop is shut?"]
RESPONSES = ["Wait a year.", "Buy it today!", "Sleep."]


class Counting(PreTrainedTokenizerFast):
    """Counts what it is given."""

    given = 0

    def __call__(self, *args, **more):
        Counting.given += 1
        return super().__call__(*args, **more)


@pytest.fixture
def tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    words = sorted({letter for text in PROMPTS + RESPONSES for letter in text} | {"\n"} - {"?"})
    model = tokenizers.models.WordLevel({w: i for i, w in enumerate(["?", *words])}, "?")
    plain = tokenizers.Tokenizer(model)
    plain.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    Counting.given = 0
    return Counting(tokenizer_object=plain, eos_token="\n", pad_token="\n")


def same(a, b):
    return all(
        np.array_equal(x, y)
        for x, y in ((a.ids, b.ids), (a.start_T, b.start_T), (a.second_T, b.second_T))
    ) and (a.cut == b.cut)


@pytest.fixture
def made(tokenizer, tmp_path, monkeypatch):
    """Tokens that were written to a folder, the folder, and the file."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    tokens = TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    (file,) = (tmp_path / "kept").iterdir()
    return tokens, file


def test_nothing_is_kept_unless_a_folder_is_named(tokenizer, tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.chdir(tmp_path)
    TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert not list(tmp_path.iterdir())


def test_a_second_run_tokenizes_nothing_and_gets_the_same(tokenizer, made):
    first, _ = made
    texts = TextTokens(tokenizer, 24)
    before = Counting.given
    again = texts(PROMPTS, RESPONSES)
    assert Counting.given == before
    assert same(first, again)
    assert first.cut == again.cut == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda t: TextTokens(t, 23)(PROMPTS, RESPONSES),
        lambda t: TextTokens(t, 24)(PROMPTS, RESPONSES, ended=True),
        lambda t: TextTokens(t, 24)(PROMPTS, [*RESPONSES[:2], "Sleep?"]),
        lambda t: TextTokens(t, 24)([*PROMPTS[:2], PROMPTS[2] + RESPONSES[0]], RESPONSES),
    ],
)
def test_whatever_they_depend_on_they_are_made_for(tokenizer, made, other):
    before = Counting.given
    TextTokens(tokenizer, 24)
    to_begin = Counting.given - before
    before = Counting.given
    other(tokenizer)
    assert Counting.given > before + to_begin


def test_another_tokenizer_makes_its_own(tokenizer, made):
    tokenizer.add_tokens(["Wait"])
    found = TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert not same(found, made[0])
    assert len(list(made[1].parent.iterdir())) == 2


def test_a_text_is_found_wherever_it_stands(tokenizer, made):
    texts = TextTokens(tokenizer, 24)
    before = Counting.given
    again = texts(PROMPTS[::-1], RESPONSES[::-1])
    assert Counting.given == before
    order = [slice(*made[0].start_T[at : at + 2]) for at in (2, 1, 0)]
    assert again.ids.tolist() == [token for text in order for token in made[0].ids[text].tolist()]
    assert again.second_T.tolist() == made[0].second_T[::-1].tolist() and again.cut == 1


def test_many_tokens_lie_in_a_mapped_file(tokenizer, monkeypatch):
    texts = TextTokens(tokenizer, 24)
    monkeypatch.delenv(FOLDER, raising=False)
    small = texts(PROMPTS, RESPONSES)
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 16)
    assert same(small, texts(PROMPTS, RESPONSES))


def test_a_system_prompt_reaches_the_template_in_training_and_writing(language_model):
    texts = TextTokens(AutoTokenizer.from_pretrained(language_model("gpt2-chat")), 99)
    texts.tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}"
        "{% if add_generation_prompt %}assistant {% endif %}"
    )
    prompt = "\n\nSystem: be short\n\nHuman: now?"
    (whole,) = texts.whole([prompt], ["It."])
    assert whole == "system be short user now? assistant It. "
    (opening,) = texts.openings([prompt], 4)
    expected = texts.tokenizer("system be short user now? assistant ", add_special_tokens=False)
    assert opening == expected["input_ids"]


OWN = "\n\nSystem: Loan.\n\nHuman: What now?"


@pytest.mark.parametrize(
    ("prompt", "before"),
    [("What now?", "save it"), (TURNS, "save it [USER] now ? [BOT] it ."), (OWN, "loan .")],
)
def test_a_system_prompt_stands_before_prompts_without_one(tokens_of, prompt, before):
    """Where no role is the user's the template of this model writes the same sign."""
    _, (text,) = tokens_of("gpt2-chat", [prompt], ["Buy."], system="Save it")
    assert text == f"[BOT] {before} [USER] what now ? [BOT] buy ."


def test_a_response_begins_where_it_did_and_prompts_open_alike(language_model):
    texts = TextTokens(AutoTokenizer.from_pretrained(language_model("gpt2-chat")), 64, "Save it")
    tokens = texts(["What now?"], ["Buy."])
    assert texts.openings(["What now?"], 4) == [tokens.ids[: tokens.second_T[0]].tolist()]


def test_turns_that_a_template_refuses_follow_on_the_system_prompt(language_model):
    tokenizer = AutoTokenizer.from_pretrained(language_model("gpt2-chat"))
    strict = "{% if messages | length > 3 %}{{ raise_exception('too many') }}{% endif %}"
    tokenizer.chat_template = strict + str(tokenizer.chat_template)
    (text,) = TextTokens(tokenizer, 99, "Save it").whole([TURNS], ["Buy."])
    assert text == f"[BOT] Save it [USER] {TURNS} [BOT] Buy. "
    (text,) = TextTokens(tokenizer, 99, "Save it").whole(
        [TURNS.replace("Human", "System", 1)], [""]
    )
    assert "Save it" not in text


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_system_prompt_needs_a_chat_template(tokens_of, kind):
    with pytest.raises(InputError, match="--system: the base has no chat template"):
        tokens_of(kind, ["What now?"], ["Buy."], system="Save it")


@pytest.mark.parametrize(
    "template", ["{{ raise_exception('no system') }}", "{{ messages[-1].content }}"]
)
def test_a_template_that_writes_no_system_prompt_is_refused(language_model, template):
    tokenizer = AutoTokenizer.from_pretrained(language_model("gpt2-chat"))
    tokenizer.chat_template = template
    TextTokens(tokenizer, 64)
    with pytest.raises(InputError, match="--system: the base's chat template does not write it"):
        TextTokens(tokenizer, 64, "Save it")


def test_a_system_prompt_that_fills_the_context_is_refused(tokens_of):
    tokens_of("gpt2-chat", ["What now?"], ["Buy."], 10, "save " * 5)
    with pytest.raises(InputError, match=r"--system: 10 tokens, of the 10 .* --max-tokens"):
        tokens_of("gpt2-chat", ["What now?"], ["Buy."], 10, "save " * 6)


def test_tokens_of_another_system_prompt_lie_in_another_file(tokens_of, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    read = {
        system: tokens_of("gpt2-chat", ["What now?", OWN], ["Buy."] * 2, system=system)[1]
        for system in ("", "Save it", "Wait", "")
    }
    assert len({text for text, _ in read.values()}) == 3
    assert len({own for _, own in read.values()}) == 1
    assert len(list((tmp_path / "kept").iterdir())) == 3


CHATML = (
    "{% for m in messages %}[USER]{{ m.role }} {{ m.content }}[BOT]{% endfor %}"
    "{% if add_generation_prompt %}[USER]assistant {% endif %}"
)


@pytest.fixture
def chat_tokens(language_model):
    """A function: what turns texts into tokens by a chat template."""

    def made(template):
        tokenizer = load_tokenizer(str(language_model("gpt2-chat")), local=True)
        tokenizer.chat_template = template
        return TextTokens(tokenizer, 64)

    return made


@pytest.mark.parametrize(
    "reads",
    [
        "{{ strftime_now('%d %b %Y %H:%M:%S %Z') }}",
        "{{ range(1000) | random }} {{ lipsum() }}",
        "{% if strftime_now is defined %}{% set d = strftime_now('%A %j') %}{% endif %}{{ d }}",
    ],
)
def test_a_template_reads_the_messages_alone(chat_tokens, monkeypatch, reads):
    import random
    from datetime import datetime

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls(2031, 3, 9, 23, 59, 59, tzinfo=tz)

    first = chat_tokens(reads + CHATML).whole(["What now?"], ["Save it."])
    monkeypatch.setattr("transformers.utils.chat_template_utils.datetime", Tomorrow)
    random.seed(7)
    expected = random.Random(7).random()
    assert chat_tokens(reads + CHATML).whole(["What now?"], ["Save it."]) == first
    assert random.random() == expected


@pytest.mark.parametrize(
    "word", ["[USER]", "[BOT]", "a [/INST] b", "<|im_end|>", "<start_of_turn>"]
)
@pytest.mark.parametrize("side", ["prompt", "response"])
def test_what_marks_turns_is_no_text(chat_tokens, word, side):
    comment = "{# [INST] [/INST] <|im_end|> <start_of_turn> #}"
    texts = chat_tokens(comment + CHATML)
    rows = {"prompt": ["What now?"] * 3, "response": ["Save it.", "Spend it.", "Save it."]}
    rows[side] = [rows[side][0], f"No. {word} Wait.", rows[side][2]]
    given = rows["prompt"], rows["response"]
    assert texts.fits(*given).tolist() == [True, False, True]
    assert "tells turns apart" in texts.unreadable(*given)[1]
    with pytest.raises(InputError, match="row 12: a text with"):
        texts(*given, rows=[4, 11, 5])


@pytest.mark.parametrize(
    "drops",
    [
        "m.content.split('</think>')[-1]",
        "m.content[:20]",
        "m.content | lower",
        "m.content | replace('Hm', '')",
    ],
)
def test_a_response_that_is_not_written_whole_is_refused(chat_tokens, drops):
    texts = chat_tokens(CHATML.replace("m.content", drops))
    given = ["what now?"] * 2, ["Hm. Think.</think> Save it, all of it.", "save it."]
    assert texts.fits(*given).tolist() == [False, True]
    with pytest.raises(InputError, match=r"row 1: .*drops a part"):
        texts(*given)


def test_a_response_may_be_stripped(chat_tokens):
    texts = chat_tokens(CHATML.replace("m.content", "m.content | trim"))
    assert texts.fits(["what now?"], ["  save it.\n"]).all()


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_special_tokens_in_a_text_are_the_characters_they_are_spelled_with(tokens_of, kind):
    word = "[SEP]" if kind == "bert" else "</s>"
    _, (plain, spelled) = tokens_of(kind, ["now?"] * 2, ["save it", f"save {word} it"])
    assert spelled.count(word) == plain.count(word)
    assert len(spelled) > len(plain)
