"""The embedded population: deterministic, disjoint, heavy-tailed, well formed, and true to BTL."""

import gzip
import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import islice
from math import exp, sqrt

import numpy as np
import pytest

from murmuration.preference.data.loading import load_data
from murmuration.sims.population import phrases, population
from murmuration.sims.population.population import (
    AXES,
    GROUPS,
    SPLITS,
    Judgement,
    Population,
)
from murmuration.sims.population.topics import LIVING_TOPICS, MONEY_TOPICS, UNSEEN_TOPICS

SMALL = Population(users=40, test_users=15, unseen_users=15)


@pytest.fixture(scope="module")
def judgements() -> dict[str, list[Judgement]]:
    """The default population with its truth, generated once."""
    return {split: list(Population().judgements(split)) for split in SPLITS}


def digest(rows) -> str:
    return hashlib.sha256("\n".join(map(json.dumps, rows)).encode()).hexdigest()


def dull(weight: float, tie_peak: float = 0.0, **changes) -> Population:
    """One crowd without personal deviation on the axis `daring`, few judgements each."""
    return Population(
        users=1500,
        crowd=(weight, 0.0, 0.0),
        personal_spread=(0.0, 0.0, 0.0),
        max_judgements=3,
        tie_peak=tie_peak,
        **changes,
    )


class TestDeterminism:
    def test_same_rows_on_every_machine(self):
        # Whoever changes wording or draws changes every published figure: renew this knowingly.
        rows = (row for split in SPLITS for row in SMALL.rows(split))
        assert digest(rows) == "68cf826c6793b90864734efdadc34e5264121ad9d1ea4c4033660ba77a4a3856"

    def test_seeds_differ(self):
        assert digest(SMALL.rows()) != digest(replace(SMALL, seed=1).rows())

    def test_every_stream_is_used_once(self):
        attitudes = {SMALL.user_weights(split, user) for split in SPLITS for user in range(40)}
        assert len(attitudes) == 3 * 40
        prompts = {split: [prompt for prompt, _, _ in SMALL.texts(split, 40)] for split in SPLITS}
        assert prompts["train"] != prompts["test"]

    def test_users_do_not_depend_on_how_many_there_are(self):
        for split in SPLITS:
            few = list(SMALL.rows(split))
            many = replace(SMALL, users=60, test_users=60, unseen_users=60).rows(split)
            assert list(islice(many, len(few))) == few
            assert next(many)["user_id"] not in {row["user_id"] for row in few}

    def test_sources_are_the_default_population(self):
        sources = {"train": population.train, "test": population.test}
        for split, source in sources.items():
            assert list(islice(source(), 50)) == list(islice(Population().rows(split), 50))

    def test_written_bytes(self, tmp_path):
        for name in ("a", "b"):
            population.write(tmp_path / name, SMALL)
        files = sorted(path.name for path in (tmp_path / "a").iterdir())
        assert files == [
            "test.jsonl.gz",
            "train.jsonl.gz",
            "truth.json",
            "unseen-topics.jsonl.gz",
        ]
        for name in files:
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        for split in SPLITS:
            header = (tmp_path / "a" / f"{split}.jsonl.gz").read_bytes()[:8]
            assert header[3] == 0 and header[4:] == bytes(4)  # no file name, no time
            with gzip.open(tmp_path / "a" / f"{split}.jsonl.gz", "rt") as file:
                assert [json.loads(line) for line in file] == list(SMALL.rows(split))
        truth = json.loads((tmp_path / "a" / "truth.json").read_text())
        assert truth["population"]["crowd"] == list(SMALL.crowd)
        assert (
            truth["attainable"]["test"]["crowd"]
            == population.attainable(SMALL.judgements("test")).crowd
        )

    def test_interrupted_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        population.write(tmp_path, SMALL)
        before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

        def interrupted(judgement):
            raise KeyboardInterrupt

        monkeypatch.setattr(Judgement, "row", interrupted)
        with pytest.raises(KeyboardInterrupt):
            population.write(tmp_path, replace(SMALL, seed=1))
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


class TestShape:
    def test_topics_are_disjoint(self, judgements):
        truth = Population().truth()["topics"]
        assert truth["train"] == truth["test"]
        assert len(set(truth["train"])) == len(MONEY_TOPICS + LIVING_TOPICS) >= 24
        assert not set(truth["train"]) & set(truth["unseen-topics"])
        known = topics_of(judgements["train"] + judgements["test"])
        assert known == set(truth["train"])
        assert topics_of(judgements["unseen-topics"]) == set(truth["unseen-topics"])
        answers = [
            {a.text for split in splits for j in judgements[split] for a in (j.chosen, j.rejected)}
            for splits in (("train", "test"), ("unseen-topics",))
        ]
        assert not answers[0] & answers[1]

    def test_heavy_tail(self, judgements):
        counts = np.array(list(Counter(j.user_id for j in judgements["train"]).values()))
        assert 9 <= np.median(counts) <= 11
        assert counts.min() == 1
        assert 2 <= np.quantile(counts, 0.1) <= 3  # 10 · exp(−1.1 · 1.2816) = 2.4
        assert 36 <= np.quantile(counts, 0.9) <= 46  # 10 · exp(1.1 · 1.2816) = 41
        assert 15 <= (counts >= 100).sum() <= 80
        assert 200 <= counts.max() <= 400

    def test_cap(self):
        counts = Counter(row["user_id"] for row in replace(SMALL, max_judgements=7).rows())
        assert max(counts.values()) == 7

    def test_tie_share(self, judgements):
        train = judgements["train"]
        assert 0.02 < np.mean([j.tie for j in train]) < 0.05
        closeness = {
            tie: np.mean([abs(j.personal_margin) for j in train if j.tie is tie])
            for tie in (True, False)
        }
        assert closeness[True] < 0.8 * closeness[False]

    def test_ties_are_ordered_by_a_fair_coin(self):
        ties = [j for j in dull(-2.0, tie_peak=1.0).judgements() if j.tie]
        first = sum(j.personal_margin > 0 for j in ties)
        assert len(ties) > 1000
        assert abs(first - len(ties) / 2) < 4 * sqrt(len(ties) / 4)

    @pytest.mark.parametrize(
        "changes",
        [
            {"users": -1},
            {"seed": -1},
            {"crowd": (1.0, 2.0)},
            {"crowd": (1.0, 2.0, float("nan"))},
            {"personal_spread": (-0.1, 0.0, 0.0)},
            {"median_judgements": 0.0},
            {"max_judgements": 0},
            {"tie_peak": 1.5},
        ],
    )
    def test_refuses(self, changes):
        with pytest.raises(ValueError, match=next(iter(changes))):
            Population(**changes)

    def test_refuses_an_unknown_split(self):
        with pytest.raises(ValueError, match="unseen-topics"):
            list(SMALL.rows("validation"))

    def test_no_users(self):
        assert list(Population(users=0).rows()) == []
        assert np.isnan(population.attainable(Population(users=0).judgements()).crowd)


def btl_score(judgements: list[Judgement], scale: float = 1.0) -> float:
    """Score statistic of the label temperature: standard normal if margins · scale are the logits.

    Each judgement is looked at from its daring answer, whose choice must not define the sign.
    """
    score = variance = 0.0
    for judgement in judgements:
        if judgement.tie:
            continue
        daring_chosen = judgement.chosen.axes[0] > 0
        logit = scale * (judgement.personal_margin if daring_chosen else -judgement.personal_margin)
        p = 1.0 / (1.0 + exp(-logit))
        score += logit * (daring_chosen - p)
        variance += logit**2 * p * (1.0 - p)
    return score / sqrt(variance)


def near(outcomes: list[bool], p: float) -> bool:
    return abs(np.mean(outcomes) - p) <= 4 * sqrt(p * (1 - p) / len(outcomes))


class TestTruth:
    @pytest.mark.parametrize("split", SPLITS)
    def test_labels_follow_btl(self, judgements, split):
        assert abs(btl_score(judgements[split])) < 4

    @pytest.mark.parametrize("wrong", [1.5, 1 / 1.5])
    def test_a_wrong_temperature_is_noticed(self, judgements, wrong):
        score = btl_score(judgements["test"], scale=wrong)
        assert score < -6 if wrong > 1 else score > 6

    @pytest.mark.parametrize("tie_peak", [0.0, 0.5])
    def test_frequencies_match_known_probabilities(self, tie_peak):
        # From weights and axes alone: weight · (strength of daring + strength of cautious).
        known = dull(-1.0, tie_peak=tie_peak, seed=3)
        chosen: dict[float, list[bool]] = defaultdict(list)
        tied: dict[float, list[bool]] = defaultdict(list)
        for j in known.judgements():
            daring, *others = known.user_weights("train", int(j.user_id.rsplit("-", 1)[1]))
            if any(others):
                continue  # savers and adventurers only: one axis
            logit = daring * abs(j.chosen.axes[0] - j.rejected.axes[0])
            tied[logit].append(j.tie)
            if not j.tie:
                chosen[logit].append(j.chosen.axes[0] > 0)
        assert len(chosen) == 2 * 5
        for logit in chosen:
            p = 1.0 / (1.0 + exp(-logit))
            assert near(chosen[logit], p)
            assert near(tied[logit], tie_peak * 4.0 * p * (1.0 - p))

    def test_attitudes(self):
        weights = np.array([Population().user_weights("train", user) for user in range(2500)])
        truth = Population()
        groups = np.array(list(GROUPS.values()))
        assert np.allclose(groups.sum(0), 0)
        spread = np.sqrt(np.square(truth.personal_spread) + np.square(groups).mean(0))
        assert np.all(np.abs(weights.mean(0) - truth.crowd) < 4 * spread / sqrt(2500))
        assert np.allclose(weights.std(0), spread, rtol=0.08)

    def test_attainable(self, judgements):
        for split in SPLITS:
            margins_R2 = np.array(
                [(j.crowd_margin, j.personal_margin) for j in judgements[split] if not j.tie]
            )
            hits_R2 = (np.sign(margins_R2.round(9)) + 1) / 2
            crowd, personal = hits_R2.mean(0)
            assert 0.74 < crowd < 0.82
            assert crowd + 0.02 < personal < 0.87
            # A reward's accuracy is what its own probabilities promise, for the users' own reward.
            promised = 1 / (1 + np.exp(-np.abs(margins_R2[:, 1])))
            deviation = np.sqrt((promised * (1 - promised)).sum()) / len(promised)
            assert abs(personal - promised.mean()) < 4 * deviation
            if split == "test":
                attainable = population.attainable(judgements[split])
                assert attainable.judgements == len(hits_R2)
                assert attainable.crowd == pytest.approx(crowd)
                assert attainable.personal == pytest.approx(personal)


def topics_of(judgements: list[Judgement]) -> set[str]:
    patterns = [
        (topic.name, re.compile("|".join(map(slot_pattern, topic.prompts))))
        for topic in MONEY_TOPICS + LIVING_TOPICS + UNSEEN_TOPICS
    ]
    found = set()
    for prompt in {j.prompt for j in judgements[::20]}:
        matching = [name for name, pattern in patterns if pattern.search(prompt)]
        assert len(matching) == 1, (prompt, matching)
        found.add(matching[0])
    return found


def slot_pattern(prompt: str) -> str:
    return re.sub(r"\\\{\w+\\\}", ".+", re.escape(prompt))


class TestText:
    def test_well_formed(self, judgements):
        bad = re.compile(r"[{}|_]|  |\s[.,;:!?]|[.,;:!?]{2}|\n|^\s|\s$|\b(\w+) \1\b|\ban? an?\b")
        for split in SPLITS:
            assert all(j.chosen.text != j.rejected.text for j in judgements[split])
            assert all(j.prompt.endswith("?") for j in judgements[split])
            for j in judgements[split][::6]:
                for text in (j.prompt, j.chosen.text, j.rejected.text):
                    assert not bad.search(text), text
                    assert text[0].isupper() and text[-1] in ".?"
                    assert all(s[0].isupper() for s in re.split(r"[.?] ", text)), text

    def test_one_cautious_and_one_daring_answer(self, judgements):
        for j in judgements["test"]:
            assert sorted(np.sign([j.chosen.axes[0], j.rejected.axes[0]])) == [-1, 1]

    def test_axes_are_in_the_text(self, judgements):
        general = {
            False: phrases.CAUTIOUS_PLAIN_REASONS + phrases.DARING_PLAIN_REASONS,
            True: phrases.CAUTIOUS_TECHNICAL_REASONS + phrases.DARING_TECHNICAL_REASONS,
        }
        reasons = {tone: {reason.lower() for reason in general[tone]} for tone in general}
        for topic in MONEY_TOPICS + LIVING_TOPICS:
            for side in (topic.cautious, topic.daring):
                reasons[False] |= {reason.lower() for reason in side.plain_reasons}
                reasons[True] |= {reason.lower() for reason in side.technical_reasons}
        leads = {0.5: phrases.HEDGED_LEADS, 0.75: phrases.PLAIN_LEADS, 1.0: phrases.FIRM_LEADS}
        assert len(AXES) == 3
        for j in judgements["test"][:500]:
            for answer in (j.chosen, j.rejected):
                text = answer.text.lower()
                daring, detail, tone = answer.axes
                assert detail == (len(re.findall(r"[.](?: |$)", text)) - 3) / 2
                given = {tone: sum(map(text.count, reasons[tone])) for tone in reasons}
                assert given[bool(tone)] and not given[not tone]
                assert given[bool(tone)] == sum(reason in text for reason in reasons[bool(tone)])
                assert any(lead.lower() in text for lead in leads[abs(daring)])

    def test_no_word_and_no_length_gives_it_away(self, judgements):
        answers = [a for j in judgements["train"][::4] for a in (j.chosen, j.rejected)]
        presence: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        for answer in answers:
            for word in set(re.findall(r"[\w'-]+", answer.text.lower())):
                presence[word][answer.axes[0] > 0] += 1
        per_side = len(answers) / 2
        lead = max(abs(daring - cautious) / per_side for cautious, daring in presence.values())
        assert 0.5 + lead / 2 < 0.56  # accuracy of the best single word
        lengths = [np.sign(len(j.chosen.text) - len(j.rejected.text)) for j in judgements["train"]]
        assert 0.52 < 0.5 + np.mean(lengths) / 2 < 0.65

    def test_public_texts(self, judgements):
        public = list(SMALL.texts("train", 300))
        assert public == list(replace(SMALL, users=1).texts("train", 300))
        assert public[:100] == list(SMALL.texts("train", 100))
        seen = {a.text for j in judgements["train"] for a in (j.chosen, j.rejected)}
        private = sum(text in seen for _, *answers in public for text in answers)
        assert private < 0.05 * 600
        assert len({prompt for prompt, _, _ in public}) > 250
        assert digest(public) != digest(SMALL.texts("test", 300))


def test_texts_are_what_was_preferred():
    people = Population(users=5, test_users=3)
    rows, judged = list(population.own_texts(people, "train")), list(people.rows("train"))
    assert [row["user_id"] for row in rows] == [row["user_id"] for row in judged]
    assert [row["text"] for row in rows] == [row["chosen"] for row in judged]
    assert set(rows[0]) == {"user_id", "text"}


def test_other_users_to_test_on():
    data = load_data("text", "murmuration.population:texts_test")
    assert len(data.user_ids) == Population().test_users
    assert all(user.startswith("test-") for user in data.user_ids)
