"""Deliberately broken strategies, each of which the suite's own check must reject.

The faults were measured in existing software: weighting by the number of examples, division by the
realised cohort, NaN that passes the clip, a zero update that raises, a clip norm that moves before
the noise is added.
"""

import numpy as np
import pytest
import torch

from murmuration.preference.linear.gradients import user_gradients, windows
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.strategies.contributions import bounded_sum
from murmuration.strategies.protocol import messages
from murmuration.strategies.uls import Uls


def node_half(combine):
    """A node half that adds up per-user gradients in its own way."""

    def client_update(examples, work, keys_S, source):
        words_S = source.user_words("window", int(work.number("round")), keys_S)
        group_size = int(work.number("group-size"))
        rows_K, taken_S = windows(examples.start_U, work.users_S, group_size, words_S)
        chunks = user_gradients(
            examples, work.tensor("theta"), rows_K, taken_S, preference_model("btl")
        )
        grads_SD = torch.cat([torch.zeros(0, examples.dimension), *(c.clone() for c in chunks)])
        return {"sum": combine(grads_SD, taken_S, work.number("clip-norm")).numpy()}

    return client_update


def clipped(grads_SD, norm):
    norms_S = torch.linalg.vector_norm(grads_SD, dim=1, keepdim=True)
    return grads_SD * (norm / norms_S).clamp(max=1.0)


@node_half
def weighted_by_examples(grads_SD, taken_S, norm):
    return (clipped(grads_SD, norm) * (taken_S / taken_S.float().mean())[:, None]).sum(0)


@node_half
def not_clipped(grads_SD, taken_S, norm):
    return grads_SD.nan_to_num(0.0, 0.0, 0.0).sum(0)


@node_half
def nan_passes(grads_SD, taken_S, norm):
    factors_S = [min(1.0, norm / max(float(g.norm()), 1e-12)) for g in grads_SD]
    return (torch.tensor(factors_S)[:, None] * grads_SD).sum(0)


@node_half
def nan_becomes_zeros_in_part(grads_SD, taken_S, norm):
    return clipped(grads_SD.nan_to_num(0.0, 0.0, 0.0), norm).sum(0)


@node_half
def zero_raises(grads_SD, taken_S, norm):
    return torch.stack([g * min(1.0, norm / float(g.norm())) for g in grads_SD]).sum(0)


@node_half
def sum_is_clipped_instead(grads_SD, taken_S, norm):
    return clipped(grads_SD.sum(0, keepdim=True), norm)[0]


def whole_judgements(examples, work, keys_S, source):
    """Clips each judgement instead of each user."""
    singles = type(examples)(
        examples.x_RD, examples.y_R, torch.arange(len(examples.y_R) + 1, dtype=torch.int64)
    )
    rows = np.concatenate(
        [np.arange(*examples.start_U[u : u + 2].tolist()) for u in work.users_S]
        or [np.empty(0, dtype=np.int64)]
    )
    asked = messages.TrainRequest(work.arrays, work.parameters, rows)
    return {"sum": bounded_sum(singles, asked, rows.astype(np.uint64), source, UserClip(1.0))}


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (weighted_by_examples, "clip norms"),
        (not_clipped, "moved the sum by 20.0 clip norms"),
        (sum_is_clipped_instead, "clip norms"),
        (whole_judgements, "moved the sum by 1000.0 clip norms"),
    ],
)
def test_unequal_votes(checks, fault, message):
    with pytest.raises(AssertionError, match=message):
        checks.one_vote_each(fault)


@pytest.mark.parametrize(
    ("fault", "message"),
    [(nan_passes, "NaN reached the sum"), (nan_becomes_zeros_in_part, "Not equal")],
)
def test_nan(checks, fault, message):
    with pytest.raises(AssertionError, match=message):
        checks.survives_nan(fault)


def test_a_zero_update_that_raises(checks):
    with pytest.raises(ZeroDivisionError):
        checks.accepts_silence(zero_raises)


def test_the_node_halves_here_are_sound_but_for_their_fault(checks):
    @node_half
    def honest(grads_SD, taken_S, norm):
        return UserClip(norm).clip_sum(grads_SD).float()

    checks.one_vote_each(honest)
    checks.survives_nan(honest)
    checks.accepts_silence(honest)


# The server's half


class RealisedCohort(Uls):
    """Divides by as many users as were drawn."""

    def gradient(self, round_, totals):
        drawn = max(1, sum(self._asked.users.values()))
        return super().gradient(round_, totals) * self.plan.cohort / drawn


class ClipMovesFirst(Uls):
    """Nodes clip at one norm, noise is made for the next one; or the other way round."""

    def parameters(self):
        norm = self.plan.clip.norm * 1.1**self.rounds_done
        return {**super().parameters(), "clip-norm": norm}


class HonestUls(Uls):
    """As it is."""


class NoiseOnTheMean(Uls):
    """Adds the noise of a sum to the mean."""

    def gradient(self, round_, totals):
        scaled = {"sum": totals["sum"] / self.plan.cohort}
        return super().gradient(round_, scaled) * self.plan.cohort


class SmallerNoise(Uls):
    """Noise for two thirds of the clip norm."""

    def gradient(self, round_, totals):
        exact_D = totals["sum"] / self.plan.cohort
        return exact_D + (super().gradient(round_, totals) - exact_D) * 2 / 3


def test_division_by_the_realised_cohort(make_world, checks):
    def world(strategy):
        return make_world(
            checks.gather(*[checks.like_everybody(2)] * 30),
            cohort=9,
            noise_multiplier=1e-9,
            optimizer={"rate": 1e-9},
            strategy=strategy,
        )

    checks.fixed_denominator(world(HonestUls))
    with pytest.raises(AssertionError, match="moves with the cohort"):
        checks.fixed_denominator(world(RealisedCohort))


@pytest.mark.parametrize(
    ("strategy", "fault"),
    [
        (HonestUls, False),
        (ClipMovesFirst, True),
        (NoiseOnTheMean, True),
        (SmallerNoise, True),
        (RealisedCohort, True),
    ],
)
def test_noise_for_another_clip_norm(make_world, make_examples, checks, strategy, fault):
    examples = make_examples([1, 2] * 15, dimension=6000)
    examples.x_RD.zero_()
    sent = []

    class Listening:
        def __init__(self, grid):
            self.grid = grid

        def __getattr__(self, name):
            return getattr(self.grid, name)

        def push_messages(self, outgoing):
            asked = [messages.read_work(message.content) for message in outgoing]
            sent[:] = [work.number("clip-norm") for work in asked]
            return self.grid.push_messages(outgoing)

    world = make_world(
        examples, cohort=10, clip=UserClip(0.4), strategy=strategy, wrap=Listening, seed=1
    )
    if fault:
        with pytest.raises(AssertionError, match="promised scale"):
            checks.noise_for_the_clip_in_force(world, lambda: sent)
    else:
        checks.noise_for_the_clip_in_force(world, lambda: sent)
