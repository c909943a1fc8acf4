"""The bench of writing: both answer all prompts, and tokens are counted alike."""

import pytest

from murmuration.research.bench import writing
from murmuration.research.bench.language_model import LmBench
from murmuration.research.bench.writing import WritingBench, measure_writing

pytest.importorskip("transformers")

TINY = LmBench(tokens=128, layers=1, width=64, vocabulary=60)


def test_rows(monkeypatch):
    """Rates are tokens over the seconds that a clock gives."""
    tokens, places = [], [0]

    def clock(way):
        places[0] += 1
        count = way()
        tokens.append(count)
        return count, float(places[0] % 3 or 3)

    monkeypatch.setattr(writing, "timed", clock)
    rows = measure_writing(WritingBench(prompts=5, tokens=4, model=TINY), [2, 5], 1)
    ours, by_two, at_once = tokens[3:]  # after those that warm up
    assert all(5 <= count <= 20 for count in tokens)
    assert [row["batch_size"] for row in rows] == [2, 5]
    assert rows[0]["ours_tokens_per_second"] == ours
    assert rows[0]["plain_tokens_per_second"] == by_two / 2
    assert rows[1]["ratio"] == pytest.approx(ours / (at_once / 3))


def test_questions_are_asked_of_a_base(language_model):
    rows = measure_writing(WritingBench(language_model("gpt2"), prompts=3, tokens=2), [3], 1)
    assert rows[0]["ratio"] > 0


def test_all_prompts_are_answered_to_the_same_end(language_model, monkeypatch):
    """An end token that always comes first leaves one token an answer, in both ways."""
    counts = []
    monkeypatch.setattr(writing, "timed", lambda way: (counts.append(way()) or counts[-1], 1.0))
    load = writing.load_next_token

    def always_ending(path):
        network, texts = load(path)
        monkeypatch.setattr(type(texts), "ends", tuple(range(len(texts.tokenizer))))
        return network, texts

    monkeypatch.setattr(writing, "load_next_token", always_ending)
    measure_writing(WritingBench(language_model("gpt2"), prompts=7, tokens=5), [3], 1)
    assert counts == [7, 7, 7, 7]
