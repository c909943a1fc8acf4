"""Answers that are written once: what is kept, what goes on, what is refused."""

import json

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling
from murmuration.research.reproductions.alignment import argument_pool
from murmuration.research.reproductions.alignment.argument_pool import requests, written

FEW = Sampling(temperature=0.7, max_new_tokens=6)


@pytest.fixture(scope="module")
def base(language_model):
    return str(language_model("gpt2"))


def test_a_pool_goes_on_where_it_was_interrupted(base, tmp_path):
    prompts = requests(3)
    first = written(tmp_path / "pool", base, prompts, 1, FEW)
    both = written(tmp_path / "pool", base, prompts, 2, FEW)
    assert [row[0] for row in both] == [row[0] for row in first]
    assert [len(row) for row in both] == [2, 2, 2]
    whole = written(tmp_path / "at-once", base, prompts, 2, FEW)
    assert whole == both


def test_what_is_there_is_not_written_again(base, tmp_path, monkeypatch):
    prompts = requests(2)
    first = written(tmp_path, base, prompts, 1, FEW)

    def refuse(path):
        raise AssertionError("loaded again")

    monkeypatch.setattr(argument_pool, "load_next_token", refuse)
    assert written(tmp_path, base, prompts, 1, FEW) == first


def test_unusual_line_ends_are_letters(base, tmp_path):
    prompts = requests(1)
    written(tmp_path, base, prompts, 1, FEW)
    row = {"prompt": prompts[0], "response": "one\u2028two\x85three", "cut_off": False}
    (tmp_path / "answers-00.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    assert written(tmp_path, base, prompts, 1, FEW)[0][0].response == row["response"]


def test_answers_to_other_prompts_are_refused(base, tmp_path):
    written(tmp_path, base, requests(1), 1, FEW)
    with pytest.raises(InputError, match="other prompts"):
        written(tmp_path, base, requests(2), 1, FEW)
