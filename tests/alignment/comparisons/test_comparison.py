"""Comparing models: answers, wins, intervals over prompts, and how far a model has gone."""

import json
import math

import numpy as np
import pytest

from murmuration.alignment.comparisons.comparison import (
    ComparisonRequest,
    Side,
    compare,
    is_answers,
    log_ratios,
    promise_told,
    prompts_in,
    read_answers,
    write_sides,
)
from murmuration.alignment.comparisons.intervals import PromptBootstrap
from murmuration.alignment.comparisons.page import page
from murmuration.alignment.writing import answer_lines
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import PublicSeed, Sampling, Writer
from murmuration.preference.language.likelihood import SavedLikelihood


class ByLength:
    """A judge who likes the longer answer."""

    def preferred(self, prompts, first, second):
        lengths = [(len(one), len(other)) for one, other in zip(first, second, strict=True)]
        return np.array([0.5 if a == b else float(a > b) for a, b in lengths])

    def figures(self, prompts, answers):
        return {"longest": max(map(len, answers))}

    def about(self):
        return {"kind": "length", "name": "length", "how": "By length.", "caveats": ["Silly."]}


def asked(prompts, **more):
    more = {"models": ["m.jsonl"], "against": "o.jsonl", "source": "here"} | more
    return ComparisonRequest(prompts=prompts, **more)


def bootstrapped(values_TN, prompts, draws=4000, seed=1):
    """The interval, one draw after the other, by no code of the product."""
    generator = np.random.default_rng(seed)
    groups = {}
    for prompt, row in zip(prompts, values_TN, strict=True):
        groups.setdefault(prompt, []).extend(row)
    names, means = list(groups), []
    for _ in range(draws):
        drawn = [groups[names[k]] for k in generator.integers(len(names), size=len(names))]
        means.append(np.concatenate(drawn).mean())
    return np.percentile(means, [2.5, 97.5])


def test_an_interval_is_that_of_draws_of_whole_prompts():
    generator = np.random.default_rng(0)
    prompts = [f"p{k}" for k in generator.integers(60, size=90)]  # some twice and more
    values_TN = np.repeat(generator.random((90, 1)), 4, axis=1)  # alike within a prompt
    found = PromptBootstrap(prompts, 0).mean(values_TN)
    assert found.value == pytest.approx(values_TN.mean())
    assert [found.low, found.high] == pytest.approx(bootstrapped(values_TN, prompts), abs=0.01)
    apart = PromptBootstrap([f"{k}" for k in range(360)], 0).mean(values_TN.reshape(-1, 1))
    assert found.high - found.low > 1.6 * (apart.high - apart.low)  # 4 answers are not 4 prompts


def test_intervals_cover_as_often_as_they_say():
    generator, hits = np.random.default_rng(0), 0
    for _ in range(300):
        values_TN = (generator.random((80, 1)) < 0.3).astype(float)
        found = PromptBootstrap([str(k) for k in range(80)], 3).share(values_TN)
        hits += found.low <= 0.3 <= found.high
    assert 0.90 <= hits / 300 <= 0.985


def test_draws_are_the_seeds_and_shared_by_all_figures():
    generator = np.random.default_rng(0)
    prompts = [str(k) for k in range(50)]
    one, other = generator.random((50, 1)), generator.random((50, 1))
    drawn = PromptBootstrap(prompts, 0)
    assert drawn.mean(one) == PromptBootstrap(prompts, 0).mean(one)
    assert drawn.mean(one) != PromptBootstrap(prompts, 1).mean(one)
    shifted = drawn.mean(one - (one + 0.25))  # a paired difference knows no prompts
    assert shifted == pytest.approx((-0.25, -0.25, -0.25))
    both, differ = drawn.mean(one).low + drawn.mean(other).low, drawn.mean(one + other)
    assert differ.value == pytest.approx(one.mean() + other.mean())
    assert differ.low >= both - 1e-9


def test_where_every_prompt_says_the_same():
    drawn = PromptBootstrap([str(k) for k in range(50)], 0)
    assert drawn.mean(np.ones((50, 2))) == (1.0, 1.0, 1.0)
    value, low, high = drawn.share(np.ones((50, 2)))
    assert (value, high) == pytest.approx((1.0, 1.0))
    assert low == pytest.approx(50 / (50 + 1.959964**2))  # of 50 prompts, not of 100 answers
    assert math.isnan(drawn.mean(np.full((50, 1), np.nan)).value)


def test_what_is_missing_is_left_out():
    values_TN = np.array([[1.0, np.nan], [0.0, 0.0], [np.nan, np.nan]])
    assert PromptBootstrap(["a", "b", "c"], 0).mean(values_TN).value == pytest.approx(1 / 3)


def write(path, rows):
    path.write_text("".join(json.dumps(dict(zip(("prompt", "response"), row, strict=True))) + "\n"
                            for row in rows))  # fmt: skip
    return str(path)


def test_answers_from_a_file(tmp_path):
    path = write(tmp_path / "a.jsonl", [("p", "1"), ("q", "2"), ("p", "3"), ("q", ""), ("p", "5")])
    assert prompts_in(path) == ["p", "q"]
    assert prompts_in(path, 1) == ["p"]
    assert read_answers(path, ["q", "p"], 1) == [["2"], ["1"]]
    assert read_answers(path, ["q", "p"], 2) == [["2", ""], ["1", "3"]]
    assert read_answers(path, ["p"], 3) == [["1", "3", "5"]]
    # A prompt that is asked twice shares them out.
    assert read_answers(path, ["p", "q", "p"], 1) == [["1"], ["2"], ["3"]]
    for prompts, samples in ((["p", "q"], 3), (["q", "q"], 2), (["other", "p"], 1)):
        with pytest.raises(InputError, match=r"a.jsonl: 1 of . prompts have too few answers"):
            read_answers(path, prompts, samples)


def test_what_respond_writes_of_a_prompt_that_comes_twice(tmp_path):
    prompts = ["p", "q", "p"]
    answers_TN = [["p1", "p1b"], ["q1", "q1b"], ["p2", "p2b"]]
    path = tmp_path / "a.jsonl"
    path.write_bytes(answer_lines(prompts, answers_TN))
    assert read_answers(str(path), prompts, 2) == answers_TN
    assert read_answers(str(path), prompts, 1) == [["p1"], ["q1"], ["p2"]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no answers"),
        ('{"prompt": "p"}', "line 1 needs"),
        ('{"prompt": "p", "response": 3}', "line 1 needs"),
        (
            '{"prompt": "p", "response": "a"}\n{"prompt": null, "response": "a"}',
            "line 2 needs",
        ),
        ('{"prompt": "p", "response": "\\ud800"}', "line 1 needs"),
        ("[]", "line 1 needs"),
        ("{", "line 1 needs"),
        (None, "no such file"),
    ],
)
def test_files_that_hold_no_answers(tmp_path, content, said):
    path = tmp_path / "a.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=said):
        prompts_in(str(path))


def test_what_is_a_file_of_answers():
    assert all(map(is_answers, ("a.jsonl", "x/b.JSONL", "c.jsonl.gz")))
    assert not any(map(is_answers, ("runs/model", "a.json", "jsonl", "a.jsonl/model")))


def test_wins_and_what_is_told_of_them():
    prompts = ["p", "q", "p"]
    other = Side("o", [["aa", "bb"]] * 3)
    one = Side("m", [["aaa", "b"], ["bb", "ccc"], ["a", "a"]], no_kl="a file")
    two = Side("n", [["a", "a"]] * 3, np.array([[1.0, 2.0], [3.0, np.nan], [0.0, 0.0]]))
    found = compare(asked(prompts, samples=2), [one, two], other, ByLength())
    result = found.result
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    first, second = result["models"]
    assert (first["wins"], first["ties"], first["losses"]) == (2, 1, 3)
    assert first["win_rate"][0] == pytest.approx(2.5 / 6)
    assert first["longest"] == 3
    assert first["words"] == 1
    assert (first["kl"], first["no_kl"]) == (None, "a file")
    assert second["win_rate"][0] == 0
    assert second["kl"][0] == pytest.approx(6 / 5)
    assert result["prompts"] == {"source": "here", "count": 3, "different": 2}
    (beside,) = result["beside_the_first"]
    assert beside["win_rate_difference"][0] == pytest.approx(-2.5 / 6)
    said = " ".join(result["caveats"])
    for words in (
        "Silly.",
        "looks better by chance",
        "1 answers do not fit",
        "divergence for m: a file",
    ):
        assert words in said
    assert found.wins[0].tolist() == [[1, 0], [0.5, 1], [0, 0]]


def test_wins_are_told_at_equal_length_too():
    """A judge who likes longer answers gives nothing more where length is taken off."""
    generator = np.random.default_rng(0)
    longer, shorter = (
        Side(name, [["w" * n] for n in generator.integers(mean - 35, mean + 35, size=40)])
        for name, mean in (("m", 75), ("o", 40))
    )
    found = compare(asked([f"question {k}" for k in range(40)]), [longer], shorter, ByLength())
    (model,) = found.result["models"]
    assert model["win_rate"][1] > 0.55
    assert model["length_controlled"][1] < 0.5 < model["length_controlled"][2]
    assert "length-controlled wins" in page(found)


def test_drawn_at_another_temperature_it_is_no_divergence():
    side = Side("m", [["a"]] * 2, np.zeros((2, 1)))
    for sampling, told in ((Sampling(), False), (Sampling(0.5), True), (Sampling(1, 0.9), True)):
        found = compare(asked(["p", "q"], sampling=sampling), [side], side, ByLength())
        assert any("not the divergence" in text for text in found.result["caveats"]) is told


@pytest.mark.parametrize("more", [{"models": []}, {"samples": 0}, {"prompts": ["p"]}])
def test_settings_that_are_refused(more):
    with pytest.raises(InputError):
        ComparisonRequest(
            **{"models": ["m"], "against": "o", "prompts": ["p", "q"], "source": "s"} | more
        )


PROMPTS = ["what now ?", "save it", "buy today !"] * 4


def test_models_answer_by_draws_of_their_own_and_go_their_way(language_model, near_the_reference):
    base, sampling = language_model("gpt2"), Sampling(max_new_tokens=6)
    other_weights = str(near_the_reference[0])
    now = asked(PROMPTS, models=[base, other_weights], against=base, samples=2, sampling=sampling,
                seed=PublicSeed(5))  # fmt: skip
    places = {}
    (same, near), other = write_sides(now, kept=places.__setitem__)
    assert places == {0: other, 1: same, 2: near}
    assert same.answers_TN != other.answers_TN
    assert [row[0] for row in same.answers_TN] == Writer.load(base).write(PROMPTS, sampling, (5, 0))
    assert [row[0] for row in other.answers_TN] == Writer.load(base).write(
        PROMPTS, sampling, (5, 1)
    )
    assert all(one != two for one, two in zip(*zip(*near.answers_TN, strict=True), strict=True))
    assert np.abs(same.log_ratio_TN).max() < 1e-9  # from itself it has not gone
    flat = [(p, a) for p, row in zip(PROMPTS, near.answers_TN, strict=True) for a in row]
    scores = [
        SavedLikelihood.load(m).score(*zip(*flat, strict=True)) for m in (other_weights, base)
    ]
    assert near.log_ratio_TN.ravel() == pytest.approx(scores[0] - scores[1])
    # Whoever is compared, the other one's answers are the same, and so are verdicts about them.
    (alone,), again = write_sides(asked(PROMPTS, models=[base], against=base, sampling=sampling,
                                        seed=PublicSeed(5)))  # fmt: skip
    assert [row[:1] for row in other.answers_TN] == again.answers_TN
    assert [row[:1] for row in same.answers_TN] == alone.answers_TN


def test_an_estimate_of_the_divergence_of_whole_answers(language_model, near_the_reference):
    """Of answers that end at once or after a token, where it can be counted out."""
    import torch

    both = (near_the_reference[0], language_model("gpt2"))
    policy, reference = map(SavedLikelihood.load, both)
    tokenizer = policy.texts.tokenizer
    words = [tokenizer.decode([k]) for k in range(7, len(tokenizer))]
    answers = ["", *words]
    prompts = ["what now ?"] * len(answers)
    log_p, log_q = policy.score(prompts, answers), reference.score(prompts, answers)
    exact = float((np.exp(log_p) * (log_p - log_q)).sum() / np.exp(log_p).sum())
    drawn = torch.multinomial(torch.tensor(np.exp(log_p)), 4000, replacement=True,
                              generator=torch.Generator().manual_seed(0)).tolist()  # fmt: skip
    ratio = log_ratios(policy, reference, ["what now ?"] * 4000, [answers[k] for k in drawn])
    assert ratio is not None
    assert abs(exact) > 0.01
    assert ratio.mean() == pytest.approx(exact, abs=4 * ratio.std() / 4000**0.5)


def test_models_of_other_tokens_have_no_divergence(language_model):
    now = asked(PROMPTS, models=[language_model("qwen2"), language_model("gpt2-chat"), "f.jsonl"],
                against=language_model("gpt2"), sampling=Sampling(max_new_tokens=4))  # fmt: skip
    import dataclasses

    (other, chat), _ = write_sides(dataclasses.replace(now, models=now.models[:2]))
    for side in (other, chat):
        assert side.log_ratio_TN is None
        assert "texts are other tokens" in side.no_kl


def test_files_have_no_divergence_and_are_not_asked(language_model, tmp_path):
    rows = [(prompt, "save it") for prompt in PROMPTS]
    path, base = write(tmp_path / "a.jsonl", rows), language_model("gpt2")
    few = {"sampling": Sampling(max_new_tokens=4)}
    (side,), other = write_sides(asked(PROMPTS, models=[base], against=path, **few))
    assert "is a file" in side.no_kl
    assert other.answers_TN == [["save it"]] * len(PROMPTS)
    (side,), _ = write_sides(asked(PROMPTS, models=[path], against=base, **few))
    assert "from a file" in side.no_kl
    (side,), _ = write_sides(asked(PROMPTS, models=[base], against=base, kl=False, **few))
    assert (side.log_ratio_TN, side.no_kl) == (None, "not asked for")


def test_a_file_that_does_not_fit_is_told_before_anything_is_written(tmp_path):
    path = write(tmp_path / "a.jsonl", [("p", "1")])
    with pytest.raises(InputError, match="too few answers"):
        write_sides(asked(["p", "q"], models=[path], against="no/such/model"))


def test_answers_that_do_not_fit_into_a_context(language_model):
    model = SavedLikelihood.load(language_model("gpt2"))
    ratio = log_ratios(model, model, ["what now ?"] * 2, ["save it", "save it " * 60])
    assert ratio is not None
    assert ratio[0] == 0
    assert math.isnan(ratio[1])


def test_each_side_has_its_promise(write_rows, language_model, tmp_path):
    plain = write_rows([{"prompt": "a", "response": "b"}], "plain.jsonl")
    marked = write_rows(
        [{"prompt": "a", "response": "b", "private_runs": "f" * 32}], "marked.jsonl"
    )
    assert promise_told(plain) == promise_told(language_model("gpt2")) == "none stated"
    assert promise_told(marked).startswith("not known: ") and "f" * 32 in promise_told(marked)
    assert str(tmp_path) not in promise_told(marked)
