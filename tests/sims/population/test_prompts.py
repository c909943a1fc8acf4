"""Prompts to be answered: the population's, or anybody's."""

import gzip
import json
import os
import re
from pathlib import Path

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.sims.population.population import Population
from murmuration.sims.population.prompts import NAMES, QUESTIONS, TOPICS, prompts_of, questions

DATA = Path(os.environ.get("MURMURATION_SHARED_DATA", Path(__file__).parents[4] / "shared/data"))
#: Words that say nothing of what a question is about.
SMALL = re.compile(
    r"\b(a|an|and|are|as|at|be|better|bad|by|do|does|for|good|have|idea|if|in|is|it|its|of|on|one|or|"
    r"other|people|right|should|than|that|the|their|there|to|we|which|will|with|wrong|you|your)\b"
)


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


def about(text):
    return set(re.findall(r"[a-z]+", SMALL.sub(" ", text.lower())))


def test_questions_of_our_own():
    assert prompts_of(QUESTIONS) == questions()
    assert prompts_of(QUESTIONS, 7) == questions()[:7]
    assert len(set(map(str.casefold, questions()))) == len(questions()) == 300
    for question in questions():
        assert question == question.strip() and question.endswith("?") and question[0].isupper()
        assert 3 <= len(question.split()) <= 16
    # No two are nearly one, and none is about the population's or the tests' topics by accident.
    words = [about(question) for question in questions()]
    for at, one in enumerate(words):
        assert not [other for other in words[:at] if len(one & other) > 0.7 * len(one | other)]


#: Debates of UKPConvArg1, in a few words each.
DEBATES = (
    "ban plastic water bottles", "christianity atheism", "evolution creation",
    "firefox internet explorer", "gay marriage", "parents spanking discipline",
    "spouse committed murder turn in", "india potential lead world", "lousy father fatherless",
    "porn", "school uniform", "personal pursuit advancing common good", "pro-choice pro-life",
    "abortion", "physical education mandatory schools", "tv books", "william farquhar singapore",
)  # fmt: skip


def test_none_of_them_is_a_debate_of_the_corpus():
    for question in questions():
        for debate in map(about, DEBATES):
            assert len(about(question) & debate) < max(1, 0.6 * len(debate)), question


@pytest.mark.skipif(not DATA.is_dir(), reason="there are no shared data")
@pytest.mark.parametrize("name", ["ukp-train", "ukp-test", "polis-pairs"])
def test_none_of_them_is_in_the_data(name):
    """Neither a prompt nor a statement or argument that holds it, nor one of mostly its words."""
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    texts = {row[part] for row in rows for part in ("prompt", "chosen", "rejected")}
    prompts = {re.sub(r" Argue: .*", "", row["prompt"]) for row in rows}
    spaced = " ".join(re.sub(r"\W+", " ", text.lower()) for text in texts)
    for question in questions():
        assert re.sub(r"\W+", " ", question.lower()).strip() not in spaced, question
        for prompt in map(about, prompts):
            shared = about(question) & prompt
            assert len(shared) < 0.5 * len(about(question) | prompt), (question, prompt)
