"""Prompts to be answered: the population's, or anybody's."""

import json

import pytest

from murmuration.preference.data.rows import InputError
from murmuration.sims.population.population import Population
from murmuration.sims.population.prompts import NAMES, TOPICS, prompts_of


def test_the_populations():
    assert [prompts_of(name, 3, seed=4) for name in NAMES] == [
        list(Population().prompts(split, 3, 4)) for split in TOPICS.values()
    ]
    assert len(prompts_of(NAMES[0])) == 2000
    with pytest.raises(InputError, match="population:seen or population:unseen"):
        prompts_of("population:all")


def test_a_files(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in "abab"))
    assert prompts_of(str(path)) == [*"abab"]
    assert prompts_of(str(path), 3) == [*"aba"]


def test_what_is_refused(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "\\ud800"}\n')
    with pytest.raises(InputError, match=r"line 2 has no prompt: .* not valid Unicode"):
        prompts_of(str(path))
    path.write_text("")
    with pytest.raises(InputError, match="is empty"):
        prompts_of(str(path))
    with pytest.raises(InputError, match="--limit 500"):
        prompts_of("500")
