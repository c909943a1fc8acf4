"""Pools of answers: those that `respond` writes, scored once each."""

import numpy as np
import pytest
from language_models import saved_model

from murmuration.alignment.endpoints.writer import EndpointWriter
from murmuration.alignment.pool import rewards, seeds_of, write_samples, writer_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling, Writer


class Lengths:
    """A reward that likes long answers, and notes what it was asked."""

    def __init__(self, more=0.0):
        self.asked, self.more = [], more

    def fits(self, prompts, responses):
        return np.ones(len(responses), dtype=bool)

    def score(self, prompt, response):
        self.asked += zip(prompt, response, strict=True)
        # What of the same text is not the same twice.
        return np.array([len(text) + self.more for text in response]) + 1e-9 * len(self.asked)


def test_answers_are_those_of_respond(language_model):
    base, prompts, told = language_model("gpt2"), ["What now?", "Save it"], []
    sampling = Sampling(0.7, max_new_tokens=4)
    writer = Writer.load(base)
    answers = write_samples(writer, prompts, sampling, seeds_of(5, 3), lambda *at: told.append(at))
    for sample in range(3):
        wanted = writer.write(prompts, sampling, (5, sample))
        assert [row[sample] for row in answers] == wanted
    assert told[-1] == (6, 6)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert rewards(Lengths(), prompts, answers).shape == (2, 3)


def test_equal_texts_are_scored_once_and_alike():
    judge = Lengths()
    found = rewards(judge, ["a", "b"], [["x", "yy", "x"], ["x", "x", "x"]])
    assert judge.asked == [("a", "x"), ("a", "yy"), ("b", "x")]
    assert found[0, 0] == found[0, 2] != found[0, 1]
    assert len({*found[1]}) == 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_rewards_that_are_not_finite(bad):
    with pytest.raises(InputError, match="not finite"):
        rewards(Lengths(bad), ["a"], [["x"]])


def test_a_server_is_sent_the_system_prompt_that_a_model_of_that_name_was_trained_with(
    language_model, tmp_path, monkeypatch
):
    saved_model(tmp_path / "m", language_model("gpt2-chat"), task="sft", system="save")
    made = []
    monkeypatch.setattr(
        EndpointWriter, "__init__", lambda self, endpoint, system="": made.append(system)
    )
    address = "http://localhost:1/v1"
    for model, system in ((tmp_path / "m", None), (tmp_path / "m", ""), (tmp_path / "m", "bet")):
        writer_of(str(model), address, system)
    writer_of("another", address)
    assert made == ["save", "", "bet", ""]
