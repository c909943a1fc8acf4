"""One user's data move that user's share of each release, and nothing else, whatever they are.

Hypothesis draws a population over nodes and what becomes of one user: gone, of another number of
rows, of another kind, unreadable, enormous, moved, or claimed by two nodes. Both populations go
through whole runs, from bytes on nodes to files, with every noisy release replaced by its noise
alone (``tests/shared/watch.py``). Then

- the exact values that mechanisms were given differ by no more than their noise is made for,
- who else is asked is the same, and what a node says of each of them alone, to the last bit,
- a sum is that of its users asked alone, to the last step of its grid,
- every file that is written for release is the same.
"""

import json
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from neighbours import CHANGED, ITEMS, USERS, Change, changes, everybody, line, named, wide
from watch import assert_none, compare

import murmuration.client.store
from murmuration.client.store import UserStore
from murmuration.preference.data.errors import InputError
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.strategies import registry
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.spec import NodeHalf, clip_norm

pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.mark.parametrize("name", named("pairs"))
def test_named_changes(watch, name):
    assert_none(compare(watch, {}, named("pairs")[name]))


@pytest.mark.parametrize("name", named("votes"))
def test_named_changes_of_votes(watch, name):
    options, kind, _ = STRATEGIES["ranking"]
    assert_none(compare(watch, options, named("votes")[name], kind=kind))


@pytest.mark.parametrize("name", ["gone", "one row", "blank text", "moves"])
def test_named_changes_of_what_is_on_a_public_list(watch, name):
    options, kind, _ = STRATEGIES["uls strengths"]
    assert_none(compare(watch, options, named("votes")[name], kind=kind))


ANY = ("add-remove", "zero-out", "replace", "replace-labels")
COMES_OR_GOES = ("add-remove", "zero-out")

#: Of a small cohort no filtered mean could be released.
LARGER = {"users": 24, "cohort": 18}

#: Of a survey and of boards, which measure nobody.
ASKED_ONCE = {"rounds": 1, "test": "", "heldout": 0.0, "features": "hashing"}

#: Options, kind of judgements, adjacencies.
STRATEGIES: dict[str, tuple[dict, str, tuple[str, ...]]] = {
    "uls": ({}, "pairs", ANY),
    "uls two judgements": ({"group_size": 2}, "pairs", ANY),
    "uls strengths": (
        {"features": "strengths+hashing:17", "items": json.dumps(ITEMS[1:])}, "votes", ANY
    ),
    "uls from a start": ({"features": "hashing:17", "start": "length"}, "pairs", ANY),
    "uls thurstone": ({"model": "thurstone"}, "pairs", ANY),
    "uls best of four": ({}, "top-1", ANY),
    "uls ranking": ({}, "ranking", ANY),
    "uls thumbs": ({}, "thumbs", ANY),
    "dp-fedavg thumbs": ({"strategy": "dp-fedavg", "local_steps": 3}, "thumbs", ANY),
    "aup thumbs": ({"strategy": "aup"}, "thumbs", COMES_OR_GOES),
    "dp-fedavg": ({"strategy": "dp-fedavg", "local_steps": 3}, "pairs", ANY),
    "dp-fedavg best of four": ({"strategy": "dp-fedavg"}, "top-1", ANY),
    "els": ({"strategy": "els", "group_size": 4}, "pairs", COMES_OR_GOES),
    "els ranking": ({"strategy": "els", "group_size": 4}, "ranking", COMES_OR_GOES),
    "els median": ({"strategy": "els"}, "pairs", COMES_OR_GOES),
    "group": ({"strategy": "group", "group_size": 2}, "pairs", ANY),
    "adaptive": ({"strategy": "adaptive"}, "pairs", ANY),
    "aup": ({"strategy": "aup"}, "pairs", ANY),
    "aup best of four": ({"strategy": "aup"}, "top-1", ANY),
    "aup threshold": ({"strategy": "aup", "variant": "above-threshold"}, "pairs", ANY),
    "aup-corrected": (
        {"strategy": "aup-corrected", "epsilon": 1e4, "clip_norm": 2.0, **LARGER},
        "pairs", ANY,
    ),
    "aup published": ({"strategy": "aup", "variant": "published"}, "pairs", ANY),
    "aup published in phases": (
        {"strategy": "aup", "variant": "published-theorem-4", "rounds": 4}, "top-1", ANY
    ),
    "survey": ({"strategy": "survey", **ASKED_ONCE}, "pairs", ANY),
    "survey of rankings": ({"strategy": "survey", **ASKED_ONCE}, "ranking", ANY),
    "ranking": ({"strategy": "ranking", **ASKED_ONCE}, "votes", ANY),
}  # fmt: skip


def patiently(examples: int) -> Callable:
    ignored = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    return settings(max_examples=examples, suppress_health_check=ignored)


def attack(watch, name: str, data) -> None:
    options, kind, adjacencies = STRATEGIES[name]
    options = {**options, "adjacency": data.draw(st.sampled_from(adjacencies))}
    where = {"seed": data.draw(st.integers(0, 1)), "alone": data.draw(st.booleans())}
    change = data.draw(changes(kind))
    assert_none(compare(watch, options, change, kind=kind, **where))


@pytest.mark.parametrize("name", STRATEGIES)
@patiently(2)
@given(data=st.data())
def test_every_strategy(watch, name, data):
    attack(watch, name, data)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", STRATEGIES)
@patiently(200)
@given(data=st.data())
def test_every_strategy_at_length(watch, name, data):
    attack(watch, name, data)


#: Where prompts and responses are public, and only labels are not.
OF_LABELS: dict[str, dict] = {
    "label-moment": {"strategy": "label-moment", "rounds": 1},
    "label-moment, two rounds": {"strategy": "label-moment", "rounds": 2},
    "objective-perturbation": {"strategy": "objective-perturbation", "rounds": 1},
    "local-label": {"strategy": "local-label", "rounds": 1},
    "local-label, sgd": {"strategy": "local-label", "rounds": 1, "estimator": "sgd"},
}


def relabelled(lines: list[bytes], words: list[int]) -> tuple[bytes, ...]:
    """The same judgements with other labels."""
    found = []
    for one, word in zip(lines, words, strict=True):
        cells = json.loads(one)
        if "chosen" in cells and word % 2:
            cells["chosen"], cells["rejected"] = cells["rejected"], cells["chosen"]
        if "chosen" in cells:
            cells["tie"] = (None, True, False, 1)[word // 2 % 4]
        if "best" in cells:
            shown = len(cells["responses"])
            cells["best"] = [word % shown] if word % 3 else [*range(1 + word % shown)]
        found.append(line(cells))
    return tuple(found)


@pytest.mark.parametrize("name", OF_LABELS)
@pytest.mark.parametrize("kind", ["pairs", "top-1"])
@patiently(2)
@given(data=st.data())
def test_labels(watch, name, kind, data):
    """Of labels that change nothing shows but in a release; those of others stay as told."""
    seed, options = data.draw(st.integers(0, 3)), {**OF_LABELS[name], "adjacency": "replace-labels"}
    if kind != "pairs" and "objective" in name:
        return
    mine = everybody(kind, seed)[CHANGED]
    words = data.draw(st.lists(st.integers(0, 23), min_size=len(mine), max_size=len(mine)))
    change = Change("labels", relabelled(mine, words))
    found = compare(watch, options, change, kind=kind, seed=seed, labels=len(mine))
    assert_none(found)


@pytest.mark.parametrize("name", ["gone", "one row", "200 rows", "no text", "odd ties", "moves"])
@pytest.mark.parametrize("seed", [4, 5], ids=["held out", "trained on"])
def test_held_out(watch, name, seed):
    """What is said of held-out users is one more release, and who is held out stays."""
    options = {"test": "", "heldout": 0.5, "users": 6, "cohort": 6, "seed": seed}
    assert_none(compare(watch, options, named("pairs")[name]))


@pytest.mark.parametrize("name", ["gone", "no JSON", "64 responses", "moves", "on two nodes"])
@pytest.mark.parametrize("strategy", ["uls", "els", "aup-corrected"])
def test_between_refreshes(watch, strategy, name):
    options, kind, adjacencies = STRATEGIES[strategy]
    options = {**options, "refresh": 1, "rounds": 3, "adjacency": adjacencies[0]}
    change = named(kind)[name]
    assert_none(compare(watch, options, change, kind=kind, late=True))


@pytest.mark.parametrize("name", ["gone", "one row", "moves"])
@pytest.mark.parametrize("strategy", ["uls", "els", "aup", "aup-corrected", "adaptive"])
def test_between_registration_and_a_round(watch, strategy, name):
    """Who goes, or comes from elsewhere, does not make nodes take somebody for somebody else."""
    options, kind, adjacencies = STRATEGIES[strategy]
    options = {**options, "adjacency": adjacencies[0]}
    assert_none(compare(watch, options, named(kind)[name], kind=kind, unannounced=True))


@pytest.mark.parametrize("name", ["one row", "no JSON", "64 responses", "moves"])
@pytest.mark.parametrize("strategy", ["uls", "adaptive"])
def test_under_masks(watch, strategy, name):
    options = {
        "strategy": strategy,
        "secure_aggregation": True,
        "adjacency": "zero-out",
        "cohort": USERS,
    }
    assert_none(compare(watch, options, named("pairs")[name]))


def test_a_wider_judgement_moves_nobody_else(watch):
    """A third response does not switch the arithmetic of those who saw two."""
    for responses in (3, 4, 64):
        change = Change("wide", (wide("top-1", responses),))
        assert_none(compare(watch, {}, change, kind="best of two"))


def shared_normaliser(monkeypatch) -> None:
    """A node divides by how many rows it hosts."""
    sound = registry.node_halves()["uls"]

    def client_update(examples, work, *others):
        step = UserClip(work.number("clip-norm")).step
        sums = sound.client_update(examples, work, *others)
        return {"sum": np.trunc(sums["sum"] / len(examples.y_R) / step) * step}

    monkeypatch.setitem(registry.node_halves(), "uls", NodeHalf(client_update, clip_norm))


def coins_by_place(monkeypatch) -> None:
    """Who is in goes by the place in the registry."""

    def sample_cohort(self, round_):
        train = self.participants.train
        coins = self.source.stream("cohort", round_).random(len(train))
        return train[coins < self.sampler.probability]

    monkeypatch.setattr(CohortStrategy, "sample_cohort", sample_cohort)


def refused_row(monkeypatch) -> None:
    """A node gives up at a row that it cannot read."""
    load = murmuration.client.store.load

    def strict(*arguments):
        found = load(*arguments)
        if found.set_aside:
            raise InputError(found.set_aside[0])
        return found

    monkeypatch.setattr(murmuration.client.store, "load", strict)


def counted_twice(monkeypatch) -> None:
    """Whom two nodes host may contribute twice."""
    monkeypatch.setattr(Registry, "single", property(lambda self: np.arange(len(self))))


def users_by_place(monkeypatch) -> None:
    """Requests say where users stood at their node when it registered."""
    salted, stood = UserStore.salted_keys, {}

    def registered(self, salt):
        for place, name in enumerate(salted(self, salt).tolist()):
            stood.setdefault(name, place)
        return salted(self, salt)

    def where(self, asked):
        places_S = np.array([stood[name] for name in asked.names_S.tolist()], dtype=np.int64)
        return np.where(places_S < len(self.keys_U), places_S, -1)

    monkeypatch.setattr(UserStore, "salted_keys", registered)
    monkeypatch.setattr(UserStore, "where", where)


LATE, UNANNOUNCED = {"late": True}, {"unannounced": True}
FAULTS = {
    "a shared normaliser": (shared_normaliser, {}, "200 rows", LATE, "somebody else's own"),
    "coins by place": (coins_by_place, {}, "gone", LATE, "others were asked"),
    "a node that fails on a bad row": (refused_row, {}, "blank text", LATE, "a node failed"),
    "two contributions of a user": (
        counted_twice, {"cohort": USERS}, "on two nodes", LATE, "more than"
    ),
    "users by place": (users_by_place, {}, "moves", UNANNOUNCED, "somebody else's own"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_seeded_faults_are_caught(watch, monkeypatch, fault):
    seeded, options, change, when, symptom = FAULTS[fault]
    seeded(monkeypatch)
    options = {"refresh": 1, **options}
    found = compare(watch, options, named("pairs")[change], fault=fault, **when)
    assert any(symptom in what for what in found), "\n".join(found)
