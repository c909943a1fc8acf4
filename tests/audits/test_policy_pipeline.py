"""Audits of whole runs that learn a policy."""

import numpy as np
import pytest
import torch
from scipy import stats

from murmuration.audits import policy_pipeline
from murmuration.audits.auditing import Task
from murmuration.audits.pipeline import CLIP, one_run, run_canaries
from murmuration.audits.policy_pipeline import (
    TARGETS,
    WrittenPolicy,
    audit_policy,
    audit_texts,
    tiny_policy,
    written_policy,
)
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling
from murmuration.preference.language.reward import save_language_model
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.audits.faults import LooseClip
from murmuration.strategies.protocol.availability import RunAborted

CANARIES = 40


@pytest.fixture
def policy():
    with tiny_policy(CANARIES, 8.0) as made:
        yield made


def theta_of(policy, scale=0.2):
    noise_D = torch.randn(policy.network.dimension, generator=torch.Generator().manual_seed(1))
    return (scale * noise_D).numpy()


def task(adjacency=Adjacency.ADD_REMOVE, epsilon=8.0, trials=CANARIES // 2):
    return Task(adjacency, epsilon, trials, Randomness(0))


@pytest.mark.parametrize("scale", [0.0, 0.2])
def test_what_is_a_canarys_own_is_nobody_elses(policy, scale):
    """Wherever the model is; the layers below the head are everybody's."""
    grads_MD = torch.cat([g.clone() for g in policy.gradients(theta_of(policy, scale))])
    length_M = grads_MD.double().norm(dim=1)
    assert (length_M > 2 * CLIP).all()
    for canary in range(CANARIES):
        own_MK = policy.own(grads_MD, np.full(CANARIES, canary))
        share_M = own_MK.norm(dim=1) / length_M
        assert 0.3 < share_M[canary] <= 1 + 1e-6
        assert torch.cat([share_M[:canary], share_M[canary + 1 :]]).max() < 1e-6
        assert (share_M[canary] > 1 - 1e-6) == (scale == 0.0)


def test_a_noiseless_sum_shows_each_clipped_gradient(policy):
    """As far along its own direction as the attacker says that it goes, whoever else is there."""
    theta_D = theta_of(policy)
    grads_MD = torch.cat([g.clone() for g in policy.gradients(theta_D)])
    there_M = np.arange(CANARIES) % 2 == 0
    sum_D = UserClip(CLIP).clip_sum(grads_MD[torch.from_numpy(there_M)]).numpy()
    x_M, length_M = policy.seen(theta_D, sum_D / CLIP)
    assert (length_M > 0.3).all() and (length_M < 1 - 1e-6).all()
    np.testing.assert_allclose(x_M, there_M * length_M, atol=1e-4)


def test_what_was_released_is_read(policy, tmp_path):
    theta_D = theta_of(policy)
    save_language_model(tmp_path / "model", policy.network, theta_D)
    found_D, prefers_M = policy.released(tmp_path / "model")
    np.testing.assert_allclose(found_D, theta_D, atol=1e-5)
    policy.network.put(theta_D)
    words = policy.network.tokenizer.convert_tokens_to_ids
    ids_R = torch.tensor([words(["Which", "?"])])
    with torch.no_grad():
        next_V = policy.network.model(input_ids=ids_R).logits[0, -1]
    expected_M = [float(next_V[words(yes)] - next_V[words(no)]) for yes, no in policy.pairs]
    np.testing.assert_allclose(prefers_M, expected_M, atol=1e-4)


@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_a_run_tells_the_attacker_something(quick_runs, adjacency):
    asked = task(adjacency)
    with tiny_policy(200, 8.0) as policy:
        found = run_canaries(asked, 0, learner=policy)
    assert found.claimed == pytest.approx(8.0, rel=1e-3)
    in_M = found.in_M
    for score_M in (found.white_M, found.black_M):
        assert (
            stats.mannwhitneyu(score_M[in_M], score_M[~in_M], alternative="greater").pvalue < 1e-4
        )


def test_a_bug_between_client_and_ledger_shows(quick_runs, monkeypatch):
    """Noise at a thirtieth, in the one place where it is added."""
    monkeypatch.setattr(
        GaussianSum, "std", property(lambda self: self.noise_multiplier * self.clip.norm / 30)
    )
    asked = task(Adjacency.REPLACE, epsilon=0.5)
    with tiny_policy(100, 0.5) as policy:
        found = run_canaries(asked, 0, learner=policy)
    for white in (True, False):
        assert one_run(asked, found, white=white).lower > found.claimed


def test_few_users_who_are_not_clipped_are_too_long(quick_runs):
    """Of many, who pull different ways, the audit shows it: see the seeded faults."""
    with pytest.raises(RunAborted, match="cannot produce"):
        audit_policy(task(Adjacency.REPLACE, epsilon=1.0), grid=LooseClip)


# Canaries whose answers the base wrote


def of_base(folder, **changes):
    usual = task(**changes)
    return Task(usual.adjacency, usual.epsilon, usual.trials, usual.source, base=str(folder))


def test_a_base_writes_answers_that_are_all_different(language_model):
    folder = language_model("gpt2")
    first, again, other = (WrittenPolicy(folder, 100, 8.0, seed=seed).pairs for seed in (1, 1, 2))
    assert first == again
    assert len({answer for pair in first for answer in pair}) == 200
    assert all(answer == answer.strip() != "" for pair in first for answer in pair)
    assert len(set(sum(first, ())) & set(sum(other, ()))) < 20


def test_a_base_that_does_not_write_as_many_is_refused(language_model, monkeypatch):
    monkeypatch.setattr(policy_pipeline, "SAMPLING", Sampling(max_new_tokens=1))
    with pytest.raises(InputError, match="100 canaries need two each: lower --trials"):
        _ = WrittenPolicy(language_model("gpt2"), 100, 8.0).pairs


def test_answers_count_by_how_much_likelier_they_have_become(language_model):
    """Whatever the base itself says of them: nothing was learnt, and that is what shows."""
    policy = WrittenPolicy(language_model("gpt2"), 20, 8.0)
    assert np.ptp(policy.preferred(policy.folder)) > 0.1
    theta, gained_M = policy.released(policy.folder)
    assert theta is None
    assert not gained_M.any()


def test_a_run_of_anybodys_base_stays_below_its_claim(language_model, quick_runs):
    measured = audit_texts(of_base(language_model("gpt2"), epsilon=2.0))
    assert 0.0 <= measured.lower <= measured.claimed == pytest.approx(2.0, rel=1e-3)
    assert measured.trials == CANARIES


@pytest.mark.parametrize("named", [False, True])
def test_noise_that_is_missing_shows_in_answers_that_a_base_wrote(
    language_model, quick_runs, monkeypatch, named
):
    """A seeded fault: hardly any noise, in the one place where it is added."""
    monkeypatch.setattr(
        GaussianSum, "std", property(lambda self: self.noise_multiplier * self.clip.norm / 200)
    )
    base = language_model("gpt2", n_embd=64) if named else ""
    measured = audit_texts(of_base(base, adjacency=Adjacency.REPLACE, epsilon=0.25, trials=100))
    assert measured.lower > measured.claimed


def test_a_tiny_base_is_there_where_none_is_named():
    with written_policy(task()) as policy:
        assert len(policy.pairs) == CANARIES
        assert policy.folder.is_dir()
    assert not policy.folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("adjacency", [Adjacency.ADD_REMOVE, Adjacency.REPLACE])
def test_targets(name, adjacency):
    target = TARGETS[name]
    found = target.measure(task(adjacency, trials=target.trials))
    assert 0.2 < found.lower <= found.claimed
