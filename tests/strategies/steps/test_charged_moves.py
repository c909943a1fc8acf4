"""Strategies of other packages that move the model by what they did not charge: the run ends."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import PureDp, Unprotected
from murmuration.privacy.accounting.ledger import Ledger, read_account
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Released
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import spec, uls
from murmuration.strategies.steps.charged_moves import UNCHARGED, ChargedMoves, UnchargedMove
from murmuration.strategies.steps.optimizers import SolvedModel
from murmuration.strategies.uls import Uls, UlsPlan

pytestmark = pytest.mark.settings(test="crowd_test", epsilon=8.0, rounds=3, cohort=20, seed=-1)


class Forgets(Uls):
    """Steps by the exact sum."""

    name = "theirs"

    def gradient(self, round_, totals):
        return totals["sum"] / self.plan.cohort


class ChargesOnce(Forgets):
    """In the first round only."""

    def gradient(self, round_, totals):
        return (
            Uls.gradient(self, round_, totals) if round_ == 1 else super().gradient(round_, totals)
        )


class ByAttribute(Uls):
    """Moves θ without a step."""

    name = "theirs"

    def update(self, round_, totals):
        self.optimizer.theta += 1e-3 * float(totals["sum"].sum())
        return 0.0


class AtTheEnd(Uls):
    """Moves θ when all is charged."""

    name = "theirs"

    def finish(self):
        self.optimizer.theta += 1.0


class MovesOnRestore(Uls):
    """Goes on from another model than was saved."""

    name = "theirs"

    def restore(self, state):
        super().restore(state)
        self.optimizer.theta += 1.0


class OnItsOwn(Forgets):
    """Runs rounds by itself."""

    def start(self, grid, *arguments, num_rounds=3, on_round=None, **more):
        for round_ in range(1, num_rounds + 1):
            self.optimizer.step(round_, np.ones(len(self.optimizer.theta)))
            self.rounds_done = round_
            on_round(round_)


class Rests(Uls):
    """Charges nothing in the second round, and moves nothing."""

    name = "theirs"

    def update(self, round_, totals):
        return 0.0 if round_ == 2 else super().update(round_, totals)


class Admits(Forgets):
    """Says that nothing is protected."""

    def gradient(self, round_, totals):
        self.ledger.charge(Unprotected(), round_=round_, covers="exact sum")
        return super().gradient(round_, totals)


@pytest.fixture
def brought(brings):
    """A function: strategy ``theirs``, of another package, has this server half."""

    def bring(half):
        def build(context, ledger):
            clip = uls.UserClip(context.config.clip_norm or 0.1)
            plan = UlsPlan.for_epsilon(context.config.epsilon, clip=clip, **context.cohort_sizes)
            return context.built(half, plan, ledger, ceiling=1.0)

        theirs = dataclasses.replace(
            uls.ULS,
            name="theirs",
            build=build,
            node_halves={"theirs": uls.ULS.node_halves["uls"]},
            settings=spec.NoSettings,
        )
        brings({"theirs": lambda: theirs})

    return bring


def run(config, **changes):
    config = config.changed(**changes)
    return run_training(config, LocalGrid(client_app, 1, config.to_run_config()))


@pytest.mark.parametrize(
    ("half", "when"),
    [
        (Forgets, "in round 1"),
        (ChargesOnce, "in round 2"),
        (ByAttribute, "in round 1"),
        (AtTheEnd, "after round 3"),
        (OnItsOwn, "in round 1"),
    ],
)
@pytest.mark.parametrize("seed", [-1, 4])
def test_a_strategy_from_outside_that_forgets_to_charge_ends_with_epsilon_infinite(
    brought, config, half, when, seed
):
    brought(half)
    with pytest.raises(InputError, match=f"moved the model {when} and charged nothing.*ε = ∞"):
        run(config, strategy="theirs", seed=seed)
    out = Path(config.out)
    account, _ = read_account(out / "ledger.jsonl")
    assert account.spent[Unprotected()] == 1
    assert account.charges[-1].covers == UNCHARGED
    assert not (out / "result.json").exists()
    assert not (out / "model").exists()
    # Nothing of the round that was not charged is written.
    rounds = [
        json.loads(line)["round"] for line in (out / "metrics.jsonl").read_text().split("\n")[:-1]
    ]
    assert rounds == {"in round 1": [], "in round 2": [1], "after round 3": [1, 2, 3]}[when]
    brought(Uls)  # mended: what got out does not come back
    with pytest.raises(InputError, match="ε = ∞"):
        run(config, strategy="theirs", seed=seed, resume=True)
    assert not (out / "result.json").exists()


def test_a_model_that_moves_when_it_is_restored_ends_the_run(brought, config, monkeypatch):
    class Killed(BaseException):
        pass

    real = RunDirectory.save_checkpoint

    def save(self, done, state):
        real(self, done, state)
        raise Killed

    brought(MovesOnRestore)
    with monkeypatch.context() as patched:
        patched.setattr(RunDirectory, "save_checkpoint", save)
        with pytest.raises(Killed):
            run(config, strategy="theirs")
    with pytest.raises(InputError, match="when round 1 was restored and charged nothing"):
        run(config, strategy="theirs", resume=True)
    assert read_account(Path(config.out) / "ledger.jsonl")[0].spent[Unprotected()] == 1


def test_a_checkpoint_of_rounds_that_nothing_was_charged_for_is_refused(
    brought, config, monkeypatch
):
    monkeypatch.setattr(ChargedMoves, "check", lambda self, round_: None)
    monkeypatch.setattr(ChargedMoves, "check_still", lambda self, round_: None)
    monkeypatch.setattr(Ledger, "released", lambda self, value: Released(value))
    brought(Forgets)
    run(config, strategy="theirs")
    monkeypatch.undo()
    brought(Forgets)
    (Path(config.out) / "result.json").unlink()
    with pytest.raises(InputError, match="no charge for round 1"):
        run(config, strategy="theirs", resume=True)


def test_rounds_that_move_nothing_need_no_charge(brought, config):
    brought(Rests)
    result = run(config, strategy="theirs")
    assert result["rounds"] == 3
    assert 0.0 < result["epsilon"] <= 8.0


def test_who_says_that_nothing_is_protected_is_stopped_by_the_budget(brought, config):
    brought(Admits)
    result = run(config, strategy="theirs")
    assert (result["rounds"], result["epsilon"]) == (0, 0.0)
    assert "stopped before round 1" in result["stopped"]


@pytest.fixture
def moves(tmp_path):
    with Ledger(
        tmp_path / "ledger.jsonl", adjacency=Adjacency.ZERO_OUT, delta=1e-5, budget=1.0
    ) as ledger:
        model = SolvedModel(2)
        yield SimpleNamespace(
            model=model, ledger=ledger, check=ChargedMoves("theirs", model, ledger).check
        )


def test_a_charge_of_another_round_does_not_count(moves):
    moves.ledger.charge(PureDp(0.1), round_=1, covers="first")
    moves.model.set(np.ones(2))
    moves.check(1)
    moves.check(2)  # nothing moved
    moves.model.set(np.zeros(2))
    with pytest.raises(UnchargedMove, match="in round 2"):
        moves.check(2)
    # Though there was a budget, which it is far above.
    assert moves.ledger.epsilon() == np.inf


def test_a_round_that_is_run_again_is_charged_again(moves):
    """A strategy that charges by round, once, would give out a second draw for nothing."""
    moves.ledger.charge(PureDp(0.1), round_=1, covers="first")
    moves.model.set(np.ones(2))
    moves.check(1)
    path = moves.ledger.path
    moves.ledger.close()
    with Ledger(path, adjacency=Adjacency.ZERO_OUT, delta=1e-5, budget=1.0) as ledger:
        model = SolvedModel(2)
        again = ChargedMoves("theirs", model, ledger)
        model.set(np.full(2, 3.0))
        with pytest.raises(UnchargedMove, match="in round 1"):
            again.check(1)


def test_a_move_below_single_precision_is_none_until_it_shows(moves):
    moves.model.set(np.array([1.0, 0.0]))
    moves.ledger.charge(PureDp(0.1), round_=1, covers="first")
    moves.check(1)
    moves.model.set(np.array([1.0 + 1e-12, 0.0]))
    moves.check(2)
    moves.model.set(np.array([1.0 + 1e-6, 0.0]))
    with pytest.raises(UnchargedMove):
        moves.check(3)
