"""Held-out accuracy: from a public file, or from nodes that are asked."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from language_models import start

from murmuration.planning.plan import plan
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.policies import policy_examples
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.events import HoldOut
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.tally import Tally, TallyRelease
from murmuration.server.evaluation import (
    HeldOut,
    examples_of_test,
    final_evaluation,
    on_held_out,
    on_test,
    read_test,
)
from murmuration.strategies.config import RunConfig

FEATURES = HashingFeatures(dimension=65)
MODEL = LinearModel(FEATURES)


def test_public_file(crowd_test):
    examples = examples_of_test(read_test(RunConfig(test=crowd_test)), MODEL, "refuse")
    assert examples.counts_U.tolist() == [4] * 10
    theta_D = np.random.default_rng(0).normal(size=65).astype(np.float32)
    found = on_test(theta_D, examples)
    expected = RewardModel(theta_D, FEATURES).accuracy(load_judgements(crowd_test))
    error = np.sqrt(expected.by_user * (1 - expected.by_user) / 10)
    assert found == HeldOut(
        accuracy=expected.pooled,
        by_user=expected.by_user,
        users=10,
        error=pytest.approx(error),
        chance=0.5,
        of_users=10,
    )
    assert 0.0 < found.accuracy < 1.0


def test_no_public_file():
    assert read_test(RunConfig()) is None


def test_a_test_file_is_read_like_the_training_file(write_rows, make_rows):
    renamed = [
        {("who" if key == "user_id" else key): value for key, value in row.items()}
        for row in make_rows([3])
    ]
    path = write_rows([*renamed, {"who": "x"}])
    settings = {"test": path, "columns": "user_id=who"}
    with pytest.raises(InputError, match=r"judgements\.jsonl:4"):
        read_test(RunConfig(**settings))
    rows = read_test(RunConfig(**settings, on_bad_rows="skip"))
    assert len(examples_of_test(rows, MODEL, "skip").y_R) == 3


def test_a_test_file_of_ties_alone_is_refused(write_rows, make_rows):
    path = write_rows(make_rows([3], ties=True))
    with pytest.raises(InputError, match=r"--test .* every judgement is a tie"):
        read_test(RunConfig(test=path))


class Strategy:
    """One whose held-out users are right three times in four."""

    def __init__(self, users=400):
        self.users, self.asked = users, []

    def tally(self, grid, theta_D, tally):
        self.asked.append((grid, theta_D))
        return sum(
            (tally.contribution(0.75, 2.0) for _ in range(self.users)),
            np.zeros(tally.figures),
        )


@pytest.fixture
def make_setting():
    def make(**changes):
        kept = {}

        def once(name, release):
            return kept.setdefault(name, kept[name] if name in kept else release().value)

        settings = RunConfig(**{"epsilon": 2.0, "data": "x", **changes})
        return SimpleNamespace(
            config=settings,
            hold_out=settings.hold_out,
            grid="grid",
            once=once,
            source=Randomness(None),
            participants=SimpleNamespace(registry=range(2500)),
            log=lambda line: None,
        )

    return make


@pytest.fixture
def make_ledger(tmp_path):
    def make(setting, budget=9.0):
        adjacency = Adjacency(setting.config.adjacency)
        return Ledger(tmp_path / "l.jsonl", adjacency=adjacency, delta=1e-5, budget=budget)

    return make


def test_what_is_told_of_held_out_users_is_noisy_charged_and_nominal(make_setting, make_ledger):
    setting, strategy = make_setting(), Strategy()
    with make_ledger(setting) as ledger:
        found = on_held_out("theta", setting, strategy, ledger)
        assert ledger.spent() == {HoldOut(0.2, 1.0): 1}
        assert on_held_out("theta", setting, strategy, ledger) == found
    assert strategy.asked == [("grid", "theta")]  # once, for the final model
    assert found.accuracy != 0.75
    assert found.accuracy == pytest.approx(0.75, abs=8 * found.noise)
    off = math.sqrt(sum((tenth / 10 - 0.75) ** 2 for tenth in range(11)))
    assert found.noise == pytest.approx(math.sqrt(2) * off / 400, rel=0.05)
    assert found.error > found.noise
    assert (found.users, found.epsilon, found.chance, found.loss) == (500, 1.0, 0.5, None)
    assert sum(found.accuracies.shares) == pytest.approx(1.0)
    assert found.accuracies.deciles[4] == pytest.approx(0.75, abs=0.06)
    assert 0.0 < max(found.accuracies.errors) < 0.1


def test_figures_on_file_whose_charge_was_lost_are_charged(make_setting, make_ledger, tmp_path):
    setting, strategy = make_setting(), Strategy()
    with make_ledger(setting) as ledger:
        told = on_held_out("theta", setting, strategy, ledger)
    for file in tmp_path.glob("l.jsonl*"):
        file.unlink()
    with make_ledger(setting) as ledger:
        assert on_held_out("theta", setting, strategy, ledger) == told
        assert ledger.spent() == {HoldOut(0.2, 1.0): 1}
    assert len(strategy.asked) == 1


def test_where_users_are_replaced_it_costs_all_of_epsilon_for_nothing(make_setting, make_ledger):
    setting = make_setting(adjacency="replace")
    assert setting.hold_out == HoldOut(0.2, 2.0)
    with make_ledger(setting) as ledger:
        assert on_held_out("theta", setting, Strategy(), ledger).epsilon == 2.0
        assert ledger.epsilon() == 2.0


def test_next_tokens_have_a_loss_under_the_same_epsilon(make_setting, make_ledger):
    setting = make_setting(task="text", base="somewhere")
    with make_ledger(setting) as ledger:
        found = on_held_out("theta", setting, Strategy(), ledger)
        assert ledger.spent() == {HoldOut(0.2, 1.0): 1}
    assert found.loss == pytest.approx(2.0, abs=8 * found.loss_noise)
    assert found.chance is None


def test_a_plan_says_what_a_run_charges_and_how_noisy_it_is(make_setting, make_ledger):
    planned = plan(epsilon=2.0, delta=1e-5, rounds=20, cohort=400, users=2000, heldout=0.2)
    setting = make_setting(users=2000)
    with make_ledger(setting) as ledger:
        figure = on_held_out("theta", setting, Strategy(), ledger)
        assert ledger.spent() == {HoldOut(0.2, planned["heldout_epsilon"]): 1}
    assert figure.users == planned["heldout_users"]
    std = TallyRelease(setting.hold_out, Adjacency.ADD_REMOVE, Tally()).std
    assert planned["heldout_noise"] == Tally().noise(0.75, 500, std)
    assert planned["heldout_noise"] == pytest.approx(figure.noise * 400 / 500, rel=0.3)


@pytest.mark.parametrize(("counts", "shown"), [([9, 9, 40], False), ([10, 10, 1], True)])
def test_how_users_differ_is_left_out_where_most_have_few_judgements(make_rows, counts, shown):
    rows = [*make_rows(counts), *(row | {"tie": True} for row in make_rows(counts))]
    examples = MODEL.examples(Judgements.from_rows(rows), None)
    theta_D = np.random.default_rng(0).normal(size=65).astype(np.float32)
    figure, _ = final_evaluation(theta_D, examples)
    assert (figure.accuracies is not None) == shown
    if shown:
        assert np.mean(figure.accuracies.deciles) == pytest.approx(figure.by_user, abs=1e-5)


def test_where_nothing_is_promised_a_figure_is_exact_and_charged_nothing(make_setting, make_ledger):
    setting = make_setting(strategy="nonprivate")
    with make_ledger(setting) as ledger:
        found = on_held_out("theta", setting, Strategy(), ledger)
        assert not ledger.spent()
    assert found.accuracy == pytest.approx(0.75, abs=1e-5)
    assert (found.noise, found.epsilon, found.users) == (None, None, 500)


def test_noise_that_drowns_everybody_is_no_figure(make_setting, make_ledger):
    setting = make_setting(heldout_epsilon=0.001)
    with make_ledger(setting) as ledger:
        assert on_held_out("theta", setting, Strategy(0), ledger) is None


def test_telling_it_again_is_paid_for_or_not_done(make_setting, make_ledger):
    setting, again = make_setting(), make_setting()  # the second has lost what was told
    with make_ledger(setting, budget=0.4) as ledger:
        assert on_held_out("theta", setting, Strategy(), ledger) is not None
        assert on_held_out("theta", again, Strategy(), ledger) is None
        assert ledger.spent() == {HoldOut(0.2, 1.0): 1}


def test_a_policy_is_measured_once_at_the_end(language_model, make_rows):
    base = LanguageBase(BaseSettings(language_model("gpt2"), rank=2, task="policy"))
    test = policy_examples(Judgements.from_rows(make_rows([10, 1, 12])), base)
    theta_D, read = start(base), Counter()
    expected = on_test(theta_D.numpy(), test)  # and references are known
    words = next(m for m in base.model.modules() if isinstance(m, torch.nn.Embedding))
    handle = words.register_forward_pre_hook(
        lambda module, args: read.update([tuple(args[0].reshape(-1).tolist())])
    )
    found, beside = final_evaluation(theta_D.numpy(), test)
    handle.remove()
    assert replace(found, accuracies=None) == expected
    assert np.mean(found.accuracies.deciles) == pytest.approx(expected.by_user, abs=1e-5)
    assert beside["chosen_ratio"] == pytest.approx(float(test.ratios(theta_D)[:, 0].mean()))
    every = [tuple(part.tolist()) for part in test.tokens.ids.split(test.tokens.lengths_T.tolist())]
    assert [read[text] for text in every] == [1] * len(every)
