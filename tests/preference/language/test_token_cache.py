"""Tokens that were made before: the same, or made anew; and nothing is kept unasked."""

import stat

import numpy as np
import pytest
from damage import change
from transformers import PreTrainedTokenizerFast

from murmuration.preference.features import mapped_rows
from murmuration.preference.language.row_cache import FOLDER
from murmuration.preference.language.tokens import TextTokens

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
    first, file = made
    texts = TextTokens(tokenizer, 24)
    before = Counting.given
    again = texts(PROMPTS, RESPONSES)
    assert Counting.given == before
    assert same(first, again)
    assert first.cut == again.cut == 1
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


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


def test_special_tokens_that_are_read_as_text_are_other_tokens(tokenizer, made):
    tokenizer.split_special_tokens = True
    TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert len(list(made[1].parent.iterdir())) == 2


def test_a_text_is_found_wherever_it_stands(tokenizer, made):
    texts = TextTokens(tokenizer, 24)
    before = Counting.given
    again = texts(PROMPTS[::-1], RESPONSES[::-1])
    assert Counting.given == before
    order = [slice(*made[0].start_T[at : at + 2]) for at in (2, 1, 0)]
    assert again.ids.tolist() == [token for text in order for token in made[0].ids[text].tolist()]
    assert again.second_T.tolist() == made[0].second_T[::-1].tolist() and again.cut == 1


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-5]),
        lambda file: file.write_bytes(b"tokens"),
        change(-1),
        change(0),
    ],
)
def test_what_is_damaged_is_made_anew(tokenizer, made, harm, caplog):
    first, file = made
    harm(file)
    again = TextTokens(tokenizer, 24)(PROMPTS, RESPONSES)
    assert "tokens are computed again" in caplog.text
    assert same(again, first)
    caplog.clear()
    assert same(again, TextTokens(tokenizer, 24)(PROMPTS, RESPONSES))
    assert not caplog.text


def test_a_folder_that_cannot_be_written_stops_nothing(tokenizer, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "kept"))
    assert len(TextTokens(tokenizer, 24)(PROMPTS, RESPONSES).second_T) == 3
    assert "cannot be kept" in caplog.text


def test_a_response_that_does_not_fit_is_refused_and_leaves_nothing(tokenizer, made):
    with pytest.raises(ValueError, match="does not fit"):
        TextTokens(tokenizer, 5)(PROMPTS, RESPONSES)
    assert len(list(made[1].parent.iterdir())) == 1


def test_many_tokens_lie_in_a_mapped_file(tokenizer, monkeypatch):
    texts = TextTokens(tokenizer, 24)
    monkeypatch.delenv(FOLDER, raising=False)
    small = texts(PROMPTS, RESPONSES)
    monkeypatch.setattr(mapped_rows, "IN_MEMORY", 16)
    assert same(small, texts(PROMPTS, RESPONSES))
