"""Survey: the plan, the node half, hostile users, and runs on every grid of this process."""

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from local_runs import resumed, run

from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.survey import one_answer
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan
from murmuration.strategies.steps.optimizers import SolvedModel
from murmuration.surveying.answers import SurveyAnswers
from murmuration.surveying.questionnaire import Questionnaire
from murmuration.surveying.release import SurveyRelease
from murmuration.surveying.strategy import SurveyPlan, client_update

FORM = Questionnaire(("money", "health"))
PLAN = {"users": 40, "rounds": 1, "delta": 1e-5, "questionnaire": FORM}


def plan(adjacency=Adjacency.ADD_REMOVE, **changes):
    return SurveyPlan(**{**PLAN, "noise_multiplier": 3.0, "adjacency": adjacency, **changes})


def sum_of(answers, **changes):
    users_S = np.arange(len(answers.counts_U))
    parameters = {"round": 1, **plan().node_config, **changes}
    work = TrainRequest({}, parameters, users_S)
    return client_update(answers, work, users_S.astype(np.uint64), Randomness(0))["sum"]


# The plan


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_one_release_of_the_bound_is_all_that_is_charged(adjacency):
    made = plan(adjacency)
    assert made.charges == {PoissonGaussian(1.0, 3.0): 1}
    assert made.clip.norm == pytest.approx(np.sqrt(1 + len(FORM.questions)))
    assert made.mechanism.std == pytest.approx(3.0 * made.clip.norm)
    assert made.clip.sensitivity(adjacency) == made.clip.norm * adjacency.vectors_changed


# The node half


@st.composite
def rows(draw):
    """The answers of one user's judgements: none, some, or the same very often."""
    spans = FORM.places[1:]
    row = st.tuples(*(st.integers(span.start, span.stop - 1) for span in spans))
    drawn = draw(st.lists(row, max_size=5))
    return drawn * draw(st.sampled_from([1, 1, 40, 3000]))


def crowd_of(rows_of):
    place_JQ = np.array([row for mine in rows_of for row in mine], dtype=np.int32)
    start_U = torch.tensor(np.cumsum([0, *map(len, rows_of)]))
    return SurveyAnswers(start_U, place_JQ.reshape(-1, len(FORM.places) - 1), FORM)


@given(st.lists(rows(), max_size=4), rows(), rows())
def test_neighbouring_crowds_differ_by_no_more_than_declared(others, mine, instead):
    """Against loops: each user's vector is counted anew, and every neighbour is tried."""
    with_me_V, without_V, with_other_V = (
        sum_of(crowd_of([*others, *crowd])) for crowd in ([mine], [], [instead])
    )
    clip = plan().clip
    for adjacency, moved_V in (
        (Adjacency.ADD_REMOVE, with_me_V - without_V),
        (Adjacency.ZERO_OUT, with_me_V - sum_of(crowd_of([*others, []]))),
        (Adjacency.REPLACE, with_me_V - with_other_V),
    ):
        assert np.linalg.norm(moved_V) <= clip.sensitivity(adjacency)
    expected_V = np.zeros(FORM.dimension)
    for row in mine:
        for place in row:
            expected_V[place] += 1 / len(mine)
    if mine:
        expected_V[0] = expected_V[FORM.per_user(len(mine))] = 1
    steps = 2 * FORM.dimension * clip.step + 1e-5  # toward zero, within the ball
    assert with_me_V - without_V == pytest.approx(expected_V, abs=steps)


def test_a_million_rows_are_worth_the_bound_and_no_more():
    for answer, judgements in itertools.product((0, -1), (1, 1_000_000)):
        mine_V = sum_of(one_answer(answer, judgements))
        assert 0.9999 * FORM.longest < np.linalg.norm(mine_V) <= FORM.longest


def test_the_server_cannot_ask_for_more_than_it_names():
    short_V = sum_of(one_answer(0, 5), **{"clip-norm": 0.5})
    assert 0.49 < np.linalg.norm(short_V) <= 0.5
    with pytest.raises(ValueError, match="clip norm"):
        sum_of(one_answer(0, 5), **{"clip-norm": float("nan")})


# An owner's policy


def request(**changes):
    made = plan(Adjacency.ZERO_OUT)
    stated = StatedPlan.of("run1", Adjacency.ZERO_OUT, 1e-6, 1, made.charges)
    parameters = {
        "strategy": "survey",
        "round": 1,
        "features": json.dumps(FORM.to_config()),
        PARAMETER: stated.to_json(),
        **made.node_config,
        **changes,
    }
    return TrainRequest({}, parameters, np.array([0]))


OWNER = Policy(
    strategies=("survey",), features=("survey",), max_epsilon=2.0, max_clip=3.0, max_rounds=1
)


def test_an_owner_allows_it_by_name_or_refuses_it():
    assert OWNER.check_work(request()).rounds == 1
    for rule, policy, changes in (
        ("strategies", replace(OWNER, strategies=("uls",)), {}),
        ("features", replace(OWNER, features=("hashing",)), {}),
        ("max_clip", OWNER, {"clip-norm": 3.1}),
        ("max_group_size", replace(OWNER, max_group_size=16), {}),  # all judgements count
        ("max_rounds", OWNER, {"round": 2}),
        ("features", OWNER, {"features": json.dumps({"kind": "encoder", "path": "survey"})}),
    ):
        with pytest.raises(PolicyRefusal) as refusal:
            policy.check_work(request(**changes))
        assert refusal.value.rule == rule


# The whole


def judgement(user, chosen="Put it aside for the day that you need it.", **more):
    row = {"user_id": user, "prompt": "What now?", "chosen": chosen, "rejected": "Spend it."}
    return {**row, **more}


@pytest.fixture
def judgements(tmp_path):
    """A file of 90 people: 60 with one judgement, 30 with three of which one is a tie."""
    data = [judgement(f"one {n}") for n in range(60)]
    for n in range(30):
        data += [judgement(f"three {n}", tie=k == 0) for k in range(3)]
    path = tmp_path / "judgements.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in data), encoding="utf-8")
    return str(path)


@pytest.fixture
def ask(judgements, tmp_path, quick_runs):
    """A function: a run on so many nodes; what it released, and the result."""

    def make(nodes=1, **changes):
        out = str(tmp_path / f"run-{len(list(tmp_path.iterdir()))}")
        given_settings = {
            "data": judgements,
            "strategy": "survey",
            "topics": '["money: spend, save", "health"]',
            "heldout": 0.0,
            "epsilon": 4.0,
            "delta": 1e-3,
            "out": out,
            **changes,
        }
        result = run(RunConfig.from_run_config(given_settings), nodes)
        return SurveyRelease.from_json(result["outcome"]["survey"]), result

    return make


def shares_of(release):
    return {
        question.name: {share.answer: share.share for share in shares}
        for question, shares in release.shares.items()
    }


def test_a_run_asks(ask):
    release, result = ask(seed=3)
    assert release.users == pytest.approx(90, abs=4 * release.noise)
    assert (result["rounds"], result["cohort"], result["users"]) == (1, 90, 90)
    assert result["heldout_accuracy"] is None and result["heldout_users"] == 0
    spent = [charge.event for charge in read_charges(Path(result["out"]) / "ledger.jsonl")]
    assert spent == [PoissonGaussian(1.0, result["noise_multiplier"])]
    assert release.epsilon == pytest.approx(4.0, rel=1e-3)
    assert release.noise == pytest.approx(result["noise_multiplier"] * result["clip_norm"])
    assert release.stated_users is None  # private under add-remove, and nobody stated it
    saved = json.loads((Path(result["out"]) / "result.json").read_text(encoding="utf-8"))
    assert saved["outcome"]["survey"] == release.to_json()
    assert not (Path(result["out"]) / "model").exists()


def test_answers_are_those_of_the_crowd(ask):
    release, _ = ask(seed=3, epsilon=200.0, adjacency="zero-out")
    assert release.stated_users == 90
    shares = shares_of(release)
    assert shares["judgements_per_user"]["1"] == pytest.approx(2 / 3, abs=0.01)
    assert shares["judgements_per_user"]["3–4"] == pytest.approx(1 / 3, abs=0.01)
    assert shares["ties"]["a tie"] == pytest.approx(1 / 9, abs=0.01)  # a third, of a third of them
    assert shares["longer"]["the longest"] == pytest.approx(8 / 9, abs=0.01)
    assert shares["language"]["English"] == pytest.approx(1.0, abs=0.01)
    assert shares["topic"]["money"] == pytest.approx(1.0, abs=0.01)
    assert [release.quantile(part) for part in (0.5, 0.9)] == [(1, 1), (3, 4)]


@pytest.mark.parametrize("changes", [{}, {"secure_aggregation": True, "adjacency": "zero-out"}])
def test_on_however_many_nodes_the_release_is_the_same(ask, changes):
    few = 3 if changes else 1
    (one, _), (many, _) = ask(nodes=few, seed=3, **changes), ask(nodes=7, seed=3, **changes)
    assert one.to_json() == many.to_json()


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_noise_is_as_promised(ask, epsilon):
    """The released sum less that of a run with next to no noise, in units of what is promised."""
    loud, _ = ask(seed=3, epsilon=epsilon)
    quiet, _ = ask(seed=3, epsilon=200.0)
    noise_V = (loud.sum_V - quiet.sum_V) / loud.noise
    assert 0.75 < np.std(noise_V) < 1.3  # 59 numbers
    assert loud.noise > 1.5 * FORM.longest / epsilon


def test_hostile_rows_move_their_users_share_only(ask, judgements):
    quiet, _ = ask(seed=3, epsilon=200.0)
    with Path(judgements).open("a", encoding="utf-8") as file:
        for n in range(2000):
            file.write(
                json.dumps(judgement("flood", chosen="猫 " * (n % 40), tie=n % 2 == 0)) + "\n"
            )
        file.write(json.dumps(judgement("nan"))[:-1] + ', "tie": NaN}\n')
        file.write(json.dumps(judgement("huge", chosen="x" * 1_000_000)) + "\n")
    after, _ = ask(seed=3, epsilon=1e5, on_bad_rows="skip")
    moved = np.linalg.norm(after.sum_V - quiet.sum_V)
    assert 1 < moved <= 3 * FORM.longest
    assert after.users - quiet.users == pytest.approx(1.0, abs=0.1)  # who has nothing is not there


def test_a_crowd_that_noise_would_drown_is_not_asked(ask, tmp_path):
    with pytest.raises(InputError, match=r"nothing would be learnt: at --epsilon 0.01 .* 90;"):
        ask(epsilon=0.01)
    for ledger in tmp_path.rglob("ledger.jsonl"):
        assert not read_charges(ledger)


@pytest.mark.parametrize("changes", [{"heldout": 0.2}, {"test": "data"}])
def test_nobody_is_left_out_to_measure_on(ask, judgements, changes):
    changes = {**changes, **({"test": judgements} if "test" in changes else {})}
    with pytest.raises(InputError, match=r"asks everybody|measure|users or rows"):
        ask(**changes)


def test_a_run_that_is_resumed_tells_the_same(ask):
    release, result = ask()  # without a seed: other noise would show
    (Path(result["out"]) / "result.json").unlink()
    again = resumed(result["out"])
    assert again["outcome"]["survey"] == release.to_json()
    assert again["epsilon"] == result["epsilon"]
    assert len(read_charges(Path(result["out"]) / "ledger.jsonl")) == 1


@pytest.mark.parametrize("seed", [-1, 3])
def test_a_crash_after_the_release_is_charged_all_the_same(ask, tmp_path, monkeypatch, seed):
    """Other noise on the same answers would be a second release, which the budget does not
    cover."""
    with monkeypatch.context() as crashing:
        crashing.setattr(SolvedModel, "set", lambda *_: (_ for _ in ()).throw(MemoryError()))
        with pytest.raises(MemoryError):
            ask(seed=seed, out=str(tmp_path / "run"))
    assert len(read_charges(tmp_path / "run" / "ledger.jsonl")) == 1
    with pytest.raises(InputError, match=r"nothing was learnt: .* over the budget"):
        resumed(tmp_path / "run", seed=seed)
    assert len(read_charges(tmp_path / "run" / "ledger.jsonl")) == 1
