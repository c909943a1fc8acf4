"""A strategy of another package with noise of its own (``examples/own_noise``): it goes
on after a crash, is guarded in every round, and what is said of it is true."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import two_band_noise
from safetensors import numpy as safetensors
from two_band_noise import BEFORE, NOW, TwoBand

from murmuration.client.app import app as client_app
from murmuration.planning.plan import plan
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.by_event import rows_of
from murmuration.privacy.accounting.events import PoissonGaussian, Unprotected
from murmuration.privacy.accounting.ledger import read_account
from murmuration.privacy.adjacency import Adjacency
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid

ROUNDS = 5
pytestmark = pytest.mark.settings(
    strategy="two-band", test="crowd_test", users=50, epsilon=8.0, rounds=ROUNDS, seed=-1
)


class Killed(BaseException):
    """The process ends here."""


class ChargesAhead(TwoBand):
    """Charges all rounds in the first, and adds no noise from then on."""

    def gradient(self, round_, totals):
        if round_ > 1:
            return totals["sum"] / self.plan.users
        for later in range(2, ROUNDS + 1):
            event = self.plan.mechanism.event
            self.ledger.charge(event, round_=later, covers=self.covers)
        return super().gradient(round_, totals)


class ReleasesTwice(TwoBand):
    """Releases a second sum in each round, under a name of its own."""

    def gradient(self, round_, totals):
        step_D = super().gradient(round_, totals)
        self.release(round_, {"sum": 0.5 * totals["sum"]}, purpose="half a sum")
        return step_D


@pytest.fixture
def bring(monkeypatch, brings):
    """A function: the strategy is installed, with this server half."""

    def install(half):
        monkeypatch.setattr(two_band_noise, "TwoBand", half)
        brings({"two-band": lambda: two_band_noise.TWO_BAND})

    return install


@pytest.fixture(autouse=True)
def two_band(bring):
    """The strategy is installed in every test."""
    bring(TwoBand)


def run(config, **changes):
    config = dataclasses.replace(config, **changes)
    return run_training(config, LocalGrid(client_app, 1, config.to_run_config()))


def killed_after(config, round_, monkeypatch):
    """Run until the checkpoint of a round is on disk."""
    save = RunDirectory.save_checkpoint

    def and_end(self, done, state):
        save(self, done, state)
        if done == round_:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "save_checkpoint", and_end)
        with pytest.raises(Killed):
            run(config)


@pytest.fixture
def watched(monkeypatch):
    """Exact sums and what was released from them, by round: ``(exact, weighted, noisy)``."""
    rounds = []
    released = TwoBand.release

    def release(self, round_, totals):
        noisy_D = released(self, round_, totals)
        rounds.append((round_, self.exact_D.copy(), totals["sum"].copy(), noisy_D.copy()))
        return noisy_D

    monkeypatch.setattr(TwoBand, "release", release)
    return rounds


def test_an_unseeded_run_that_was_killed_goes_on_with_the_band(config, monkeypatch, watched):
    killed_after(config, 2, monkeypatch)
    before = len(watched)
    state = RunDirectory(dataclasses.replace(config, resume=True)).load_checkpoint().state
    result = run(config, resume=True)
    assert result["rounds"] >= ROUNDS - 1  # one may have been charged when the process ended
    round_, exact_D, weighted_D, _ = watched[before]
    assert round_ == 3
    # The band reaches back over the crash: to the exact sum of round 2.
    second_D = (watched[1][2] - BEFORE * watched[1][1]) / NOW
    np.testing.assert_allclose(exact_D, second_D, rtol=1e-12)
    np.testing.assert_array_equal(exact_D, state["private/exact"])
    assert np.linalg.norm(weighted_D) > 0
    assert result["epsilon"] <= 8.0


def test_what_was_not_released_lies_in_the_private_folder_alone(config, monkeypatch):
    killed_after(config, 2, monkeypatch)
    out = Path(config.out)
    shown = safetensors.load((out / "checkpoint" / "state.safetensors").read_bytes())
    assert not [name for name in shown if name.startswith("private/")]
    kept = [path.name for path in (out / "private").glob("state-*")]
    assert kept == ["state-000002.safetensors"]
    (out / "private" / kept[0]).unlink()
    with pytest.raises(InputError, match=r"state-000002.safetensors is gone"):
        run(config, resume=True)


@pytest.mark.parametrize("seed", [-1, 4])
def test_it_is_guarded_in_every_round(config, bring, seed):
    bring(ChargesAhead)
    with pytest.raises(InputError, match="moved the model in round 2 and charged nothing"):
        run(config, seed=seed)
    account, _ = read_account(Path(config.out) / "ledger.jsonl")
    assert account.spent[Unprotected()] == 1
    assert not (Path(config.out) / "result.json").exists()


@pytest.mark.parametrize("seed", [-1, 4])
def test_a_second_release_of_a_round_is_no_first_one_run_again(config, bring, monkeypatch, seed):
    plan = two_band_noise.TwoBandPlan
    monkeypatch.setattr(plan, "besides", property(lambda of: {of.mechanism.event: of.rounds}))
    bring(ReleasesTwice)
    result = run(config, seed=seed)
    account, _ = read_account(Path(config.out) / "ledger.jsonl")
    assert len(account.charges) == 2 * ROUNDS
    terms = {"adjacency": Adjacency(config.adjacency), "delta": config.delta}
    assert [(row["covers"], row["times"], row["again"]) for row in rows_of(account, terms)] == [
        ("gradient sum", ROUNDS, 0),
        ("half a sum", ROUNDS, 0),
    ]
    assert 7.9 < result["epsilon"] <= 8.0


def test_the_result_says_who_took_part_and_what_was_spent(config):
    result = run(config, users=200)  # of whom 100 would be sampled
    assert (result["users"], result["cohort"]) == (200, 200)
    assert result["gradients"] == 200 * ROUNDS
    account, _ = read_account(Path(config.out) / "ledger.jsonl")
    event = PoissonGaussian(1.0, result["noise_multiplier"])
    assert account.spent == {event: ROUNDS}
    adjacency = Adjacency(config.adjacency)
    spent = accountant.epsilon([(event, ROUNDS)], adjacency=adjacency, delta=config.delta)
    assert result["epsilon"] == pytest.approx(spent)
    assert 7.9 < spent <= 8.0
    card = (Path(config.out) / "model" / "README.md").read_text(encoding="utf-8")
    assert result["theorem"]["unit"] in " ".join(card.split())
    assert "expected in a round" not in card


def test_a_cohort_is_refused(config):
    with pytest.raises(InputError, match="--cohort has no meaning for --strategy two-band"):
        run(config, cohort=10)


def test_plan_says_the_same_as_the_run(config):
    result = run(config)
    told = {"strategy": "two-band", "users": 50, "rounds": ROUNDS, "delta": 1e-3}
    told["adjacency"] = config.adjacency
    found = plan(**told, epsilon=8.0)
    assert found["noise_multiplier"] == result["noise_multiplier"]
    assert (found["cohort"], found["chosen"]) == (50, "")
    again = plan(**told, noise_multiplier=found["noise_multiplier"])
    assert again["epsilon"] == pytest.approx(result["epsilon"])
    with pytest.raises(InputError, match="--cohort has no meaning for --strategy two-band"):
        plan(**told, epsilon=8.0, cohort=10)


def test_the_noise_of_a_step_is_that_of_the_plan(config, watched, monkeypatch):
    """Solved for: what the band takes back, the next step has less of."""
    run(config, seed=3)
    noises = [noisy_D - weighted_D for _, _, weighted_D, noisy_D in watched]
    solved_D, errors = np.zeros_like(noises[0]), []
    for noise_D in noises:
        solved_D = (noise_D - BEFORE * solved_D) / NOW
        errors.append(solved_D)
    std = float(np.std(noises))
    assert np.std(errors[-1]) == pytest.approx(std / math.sqrt(NOW**2 - BEFORE**2), rel=0.2)
    taken_back = float(np.mean(errors[-1] * errors[-2])) / float(np.mean(errors[-2] ** 2))
    assert taken_back == pytest.approx(-BEFORE / NOW, abs=0.2)
