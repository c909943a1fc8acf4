"""Seeded faults: mechanisms that were broken on purpose, which an audit must catch.

Each was found in existing software, or is easily made. For each: whether the audit catches it, by a
lower bound above the claim; which test does; and what in the construction stands in its way. An
audit of a fault runs the correct code except for the one thing that is wrong.

Legend: N trials, T rounds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

import numpy as np
import torch
from flwr.app import Message
from scipy import special

from murmuration.audits.auditing import DELTA, Fault, Measured, Task
from murmuration.audits.pipeline import CLIP, Watching
from murmuration.audits.policy_pipeline import audit_policy
from murmuration.privacy.accounting.accountant import noise_multiplier_for
from murmuration.privacy.accounting.events import PureDp
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.continual.banded import Banded
from murmuration.privacy.continual.buffered import BufferedToeplitz
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.hold_out import held_out
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.ranking.strategy import client_update
from murmuration.ranking.votes import ItemVotes
from murmuration.research.audits.gaussian import (
    audit_banded,
    audit_buffered,
    audit_distributed,
    audit_gaussian,
    sampled_sums,
)
from murmuration.research.audits.hold_out import CANARY, Attack, audit_hold_out
from murmuration.research.audits.labels import label_scores
from murmuration.research.audits.selection.exponential import audit_choice
from murmuration.research.audits.selection.stopping import audit_stopping
from murmuration.research.audits.selection.threshold import audit_threshold
from murmuration.research.audits.survey import audit_survey
from murmuration.research.audits.trials import both_sides
from murmuration.research.audits.votes import (
    LAYOUT,
    audit_votes,
)
from murmuration.research.strategies.choice.exponential_mechanism import STEPS, ExponentialMechanism
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.surveying.answers import SurveyAnswers
from murmuration.surveying.strategy import SurveyPlan

_CLIP = UserClip(0.1)
#: Held out: where coins are known, what they were to save is what shows.
_MOSTLY = 0.97
_MANY = 10
_FIFTY = 50
#: How many times too long a fault lets vectors be. Of a few dozen users that go into directions of
#: their own, sums are still shorter than so many honest users can make them.
_LOOSE = 6


class LooseClip(Watching):
    """A grid whose nodes are told to clip at many times the norm that noise is for."""

    def push_messages(self, messages_: Iterable[Message]) -> Iterable[str]:
        """Push the messages with a looser clip norm."""
        outgoing = list(messages_)
        for message in outgoing:
            parameters = message.content.config_records.get("parameters", {})
            if "clip-norm" in parameters:
                parameters["clip-norm"] = _LOOSE * CLIP
        return super().push_messages(outgoing)


def trained_key(share: float) -> bytes:
    """A key derived from a public name, by which the canary is trained on."""
    names = (b"run %d" % number for number in range(10_000))
    keys = (name.ljust(32, b"\0") for name in names)
    return next(key for key in keys if not held_out(CANARY, share, key)[0])


class _TwoThirds(GaussianSum):
    """Two thirds of the noise."""

    @property
    def std(self) -> float:
        return super().std * 2 / 3


class _LongColumns(Banded):
    """Banded noise with columns of any length."""

    def __post_init__(self) -> None:
        pass


class _LongTurns(BufferedToeplitz):
    """Buffered noise with columns that add up to any length."""

    def __post_init__(self) -> None:
        pass


class _OtherClip(GaussianSum):
    """Noise for half of the norm that was clipped to."""

    @property
    def std(self) -> float:
        return self.noise_multiplier * self.clip.norm / 2


@dataclass(frozen=True)
class _Weighted(UserClip):
    """Multiplies what was clipped."""

    weight: float = 1.0

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        return self.weight * super().clip_sum(grads_BD)


#: Longer than any vector of votes.
_NO_BOUND = 1e9


def _bounds_net_scores(
    votes: ItemVotes, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half, that bounds net scores and not the counts and squares beside them."""
    every_N, counts_U = np.arange(len(votes.board_J)), votes.counts_U.numpy()
    total_V = np.concatenate([*votes.vectors(LAYOUT, _NO_BOUND, every_N, counts_U)]).sum(axis=0)
    net = LAYOUT.places["net"]
    total_V[net] *= min(1.0, LAYOUT.net_norm / np.linalg.norm(total_V[net]))
    return {"sum": total_V}


def _bounds_each_vote(
    votes: ItemVotes, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half, to which each of a voter's first fifty votes is a voter."""
    alone = replace(votes.select(np.arange(1)), start_U=torch.arange(len(votes.board_J) + 1))
    alone = alone.select(np.arange(_FIFTY))
    work, keys_S = replace(work, users_S=np.arange(_FIFTY)), np.arange(_FIFTY, dtype=np.uint64)
    return client_update(alone, work, keys_S, source)


def _counts_rows(
    answers: SurveyAnswers, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half, that counts a user's judgements, where it should take shares of them."""
    counts_V = np.bincount(answers.place_JQ.ravel(), minlength=answers.dimension)
    return {"sum": answers.vector(0) + counts_V}


@dataclass(frozen=True)
class _OneQuestion(GaussianSum):
    """Noise for the length of one question's answers."""

    @property
    def std(self) -> float:
        return self.noise_multiplier


def _noise_for_one_question(plan: SurveyPlan) -> GaussianSum:
    return _OneQuestion(plan.coins, plan.clip, plan.noise_multiplier, plan.adjacency)


class _CountsTwice(Tally):
    """Has a user count whole by accuracy and by loss."""

    def contribution(self, share: float, loss: float = math.nan) -> np.ndarray:
        return 2.0 * super().contribution(share, loss)


class _LetsNanThrough(UserClip):
    """Does not look whether a vector is finite."""

    def clip_sum(self, grads_BD: torch.Tensor) -> torch.Tensor:
        norms_B = torch.linalg.vector_norm(grads_BD.double(), dim=1)
        return (self.norm / norms_B).clamp(max=1.0) @ grads_BD.double()


class _OneWay(ExponentialMechanism):
    """The rate that suffices where users come or go, wherever."""

    @property
    def rate(self) -> Fraction:
        return super().rate * self.adjacency.vectors_changed


class _Summed(ExponentialMechanism):
    """Adds up a user's judgements, each within the span."""

    def contribution(self, losses_JP: np.ndarray) -> np.ndarray:
        parts = [super(_Summed, self).contribution(row_P[None]) for row_P in losses_JP]
        return np.sum(parts, axis=0)


class _Unbounded(ExponentialMechanism):
    """Takes losses to lie within the span."""

    def contribution(self, losses_JP: np.ndarray) -> np.ndarray:
        mean_P = losses_JP.mean(axis=0)
        return np.rint((mean_P - mean_P.min()) / self.span * STEPS)


def _heavier(task: Task, weight: float) -> Measured:
    """The canary counts so often: by their judgements, or on as many nodes, each with its clip."""
    clip = _Weighted(_CLIP.norm, weight=weight)
    return sampled_sums(task, rounds=1, probability=1.0, clip=clip).measured(task)


def _mechanism(task: Task, probability: float, rounds: int) -> GaussianSum:
    noise = noise_multiplier_for(
        task.epsilon, delta=DELTA, probability=probability, rounds=rounds, adjacency=task.adjacency
    )
    return GaussianSum(PoissonSampler(probability), _CLIP, noise, task.adjacency)


def _realised_cohort(task: Task) -> Measured:
    """Two users at C, and the canary at −C or absent; divided by three, or by two."""
    mechanism = _mechanism(task, 1.0, 1)
    noise = mechanism.noise_multiplier

    def log_density(x_N: np.ndarray, users: int) -> np.ndarray:
        mean, std = (1 / 3 if users == 3 else 1.0), noise / users
        return -0.5 * ((x_N - mean) / std) ** 2 - math.log(std)

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        users = 2 if second else 3
        rows_BD = torch.tensor([[1e3], [1e3], [-1e3]])[:users]
        exact_N = np.full(task.trials, _CLIP.clip_sum(rows_BD).item())
        noisy_N = mechanism.release(exact_N, round_=1, covers="sum", ledger=ledger, source=source)
        x_N = noisy_N / _CLIP.norm / users
        return log_density(x_N, 3) - log_density(x_N, 2)

    return both_sides(task, one).measured(task)


def _shuffled(task: Task) -> Measured:
    """Each user is in exactly one of T rounds, of equal size; accounted as Poisson with q = 1/T.

    All others contribute −C: the canary's round has one of them fewer, and shows.
    """
    rounds, slots = 50, 4
    mechanism = _mechanism(task, 1 / rounds, rounds)
    noise = mechanism.noise_multiplier

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        mine_N = source.stream("shuffle").integers(0, rounds, size=task.trials)
        first_N, other_N = (np.full(task.trials, -np.inf) for _ in range(2))
        for round_ in range(rounds):
            here_N = mine_N == round_
            exact_N = -float(slots) + here_N * (1.0 if second else 2.0)
            noisy_N = mechanism.release(
                exact_N * _CLIP.norm, round_=round_, covers="s", ledger=ledger, source=source
            )
            y_N = noisy_N / _CLIP.norm + slots
            first_N = np.logaddexp(first_N, (2 * y_N - 2) / noise**2)
            other_N = np.logaddexp(other_N, (y_N - 0.5) / noise**2)
        return first_N - other_N

    return both_sides(task, one).measured(task)


def _fresh_coins(task: Task) -> Measured:
    """One label, asked for ten times, randomized anew each time."""
    mechanism = RandomizedResponse(task.epsilon)
    scores = label_scores(mechanism, task, labels=_MANY)
    return Measured.from_scores(scores, mechanism.epsilon, task, delta=0.0)


def _nan(task: Task) -> Measured:
    """The canary's gradient is not finite: the sum is refused, and its absence reveals the canary.

    A refusal counts as the largest score.
    """
    mechanism, clip = _mechanism(task, 1.0, 1), _LetsNanThrough(_CLIP.norm)

    def one(second: bool, ledger: Ledger, source: Randomness) -> np.ndarray:
        rows_BD = torch.tensor([[0.1], [math.nan]])[: 1 if second else 2]
        score_N = np.zeros(task.trials)
        for trial in range(task.trials):
            total_D = clip.clip_sum(rows_BD).numpy()
            try:
                mechanism.release(total_D, round_=trial, covers="sum", ledger=ledger, source=source)
            except ValueError:
                score_N[trial] = math.inf
        return score_N

    return Measured.from_scores(both_sides(task, one).scores, task.epsilon, task)


def _counted_once(task: Task) -> Measured:
    """Ten labels of one user; the claim is dp-accounting's, for its own event, composed."""
    each = task.epsilon / _MANY
    flip = float(special.expit(-each))
    import dp_accounting  # dear to import, for this alone
    from dp_accounting.pld import PLDAccountant

    event = dp_accounting.RandomizedResponseDpEvent(2 * flip, 2)
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_ONE)
    accountant.compose(dp_accounting.SelfComposedDpEvent(event, _MANY))
    claimed = float(accountant.get_epsilon(DELTA))
    scores = label_scores(RandomizedResponse(each), task, labels=_MANY)
    return Measured.from_scores(scores, claimed, task)


_LABELS = Adjacency.REPLACE_LABELS

FAULTS = {
    "noise": Fault(
        "noise at two thirds",
        partial(audit_gaussian, make=_TwoThirds),
        "tests/strategies/rounds/test_every_strategy.py::test_noise_is_as_the_plan_says_no_less_and_no_more",
        trials=2_000_000,
    ),
    "wrong-clip": Fault(
        "noise for another clip norm than the one that was used",
        partial(audit_gaussian, make=_OtherClip),
        "tests/strategies/test_adaptive.py::test_noise_is_for_the_norm_that_nodes_were_told_and_the_next_is_another",
        "the mechanism that adds the noise holds the clip, and its scale is computed from it",
        trials=400_000,
    ),
    "realised-cohort": Fault(
        "division by the realised cohort",
        _realised_cohort,
        "tests/strategies/test_uls.py::test_denominator_is_the_nominal_cohort",
        "plans know the nominal cohort only",
        trials=400_000,
    ),
    "unequal-weights": Fault(
        "users count by how many judgements they gave",
        partial(_heavier, weight=3.0),
        "tests/strategies/test_uls.py::test_one_vote_each",
        "sums that are longer than so many users can make are left out",
    ),
    "shuffled": Fault(
        "a shuffled cohort of fixed size, accounted as Poisson",
        _shuffled,
        "tests/privacy/mechanisms/test_sampling.py::test_every_user_has_an_independent_coin",
        "the sampler has no other draw than independent coins",
        adjacency=Adjacency.ZERO_OUT,
    ),
    "every-turn": Fault(
        "users in the rounds of all groups, with noise that is for those of one",
        partial(audit_banded, every_round=True),
        "tests/strategies/rounds/test_correlated.py::test_groups_take_turns_and_each_round_is_charged_to_its_group",
        "the sampler asks the users of the round's group, by their names alone",
        adjacency=Adjacency.ZERO_OUT,
    ),
    "long-columns": Fault(
        "noise that is correlated by a factor whose columns are longer than 1",
        partial(audit_banded, factor=_LongColumns((1.2, 1.2, 0.9))),
        "tests/privacy/continual/test_banded.py::test_what_is_no_factor_is_refused",
        "a factor with longer columns cannot be built",
        adjacency=Adjacency.ZERO_OUT,
    ),
    "rounds-too-near": Fault(
        "users in every round, with noise that is for rounds which are three apart",
        partial(audit_buffered, every_round=True),
        "tests/strategies/rounds/test_correlated.py::test_everybody_of_a_group_is_in_its_rounds_and_the_first_pays",
        "the sampler asks the users of the round's group, by their names alone",
        adjacency=Adjacency.ZERO_OUT,
    ),
    "turns-counted-once": Fault(
        "noise that is shared as if a user took part once, where they do three times",
        partial(audit_buffered, factor=_LongTurns(0.77, (0.6, 0.2), (0.7, 0.3), 9, 3)),
        "tests/privacy/continual/test_buffered.py::test_what_is_no_factor_is_refused",
        "a factor in which a user adds more than the clip norm cannot be built",
        adjacency=Adjacency.ZERO_OUT,
    ),
    "fresh-coins": Fault(
        "fresh coins for a label that was asked for again",
        _fresh_coins,
        "tests/client/labels/test_memory.py::test_the_same_label_asked_a_hundred_times_gives_one_answer",
        "answers come from the state, where they are written before they are given",
        adjacency=_LABELS,
    ),
    "sensitivity": Fault(
        "AboveThreshold with noise for sensitivity 1, asked questions of sensitivity 2",
        partial(audit_threshold, apart=2.0),
        "tests/strategies/aup/test_published.py::test_published_score_is_that_of_line_8_and_moves_by_nearly_two",
        adjacency=Adjacency.REPLACE,
        trials=25_000,
        epsilon=1.0,
    ),
    "vote-counts": Fault(
        "net scores of votes are bounded, and the counts and squares beside them are not",
        partial(audit_votes, node_half=_bounds_net_scores),
        "tests/ranking/test_votes.py::test_no_voter_exceeds_the_bound",
        "the sum is clipped once more, whole, by the object that knows the noise",
        trials=20_000,
    ),
    "votes-one-by-one": Fault(
        "each vote is bounded by itself, and not all of a voter's together",
        partial(audit_votes, node_half=_bounds_each_vote),
        "tests/ranking/test_strategy.py::test_a_million_votes_are_worth_the_bound_and_no_more",
        "sums that are longer than so many users can make are left out",
        trials=20_000,
    ),
    "survey-counts": Fault(
        "a user's judgements are counted in a survey, where shares of them are to be summed",
        partial(audit_survey, node_half=_counts_rows),
        "tests/surveying/test_strategy.py::test_neighbouring_crowds_differ_by_no_more_than_declared",
        "the sum is clipped once more, whole, by the object that knows the noise",
        trials=20_000,
    ),
    "survey-one-question": Fault(
        "a survey of several questions, with the noise of one",
        partial(audit_survey, mechanism=_noise_for_one_question),
        "tests/surveying/test_strategy.py::test_noise_is_as_promised",
        "the mechanism that adds the noise holds the clip, and its scale is computed from it",
        trials=20_000,
    ),
    "tuned-for-free": Fault(
        "the best of many candidates is charged as if it were the only one",
        partial(audit_stopping, charge=lambda alone, stopping: PureDp(alone)),
        "tests/privacy/selection/test_random_stopping.py::test_a_search_charged_as_one_run_is_caught",
        "a search is charged before its first candidate, and candidates are compared with it",
        trials=10_000,
        epsilon=3.0,
    ),
    "one-way-rate": Fault(
        "the exponential mechanism at the rate for users who come or go, where one is swapped",
        partial(audit_choice, make=_OneWay),
        "tests/research/strategies/choice/test_exponential_mechanism.py::test_the_rate_of_one_who_comes_or_goes_costs_twice_where_one_is_swapped",
        "the rate follows from the adjacency, which the ledger must share",
        adjacency=Adjacency.REPLACE,
        trials=12_000,
    ),
    "summed-judgements": Fault(
        "a choice by users' summed losses, accounted as by their means",
        partial(audit_choice, make=_Summed),
        "tests/research/strategies/choice/test_exponential_mechanism.py::test_a_user_counts_as_the_mean_of_their_judgements",
        "sums that are more than so many users can make are left out",
        trials=4_000,
    ),
    "wide-losses": Fault(
        "a choice by losses that differ by three times the span, and are not cut off",
        partial(audit_choice, make=_Unbounded, wide=3.0),
        "tests/research/strategies/choice/test_exponential_mechanism.py::test_no_user_moves_a_probability_by_more",
        "sums that are more than so many users can make are left out",
        trials=4_000,
    ),
    "nan": Fault(
        "a clip that lets NaN through",
        _nan,
        "tests/privacy/mechanisms/test_clipping.py::test_users_who_are_not_finite_count_as_zero",
        "nodes and mechanisms refuse sums that are not finite: nothing is released, which would "
        "tell who is there",
        trials=2_000,
    ),
    "two-nodes": Fault(
        "a user on two nodes, clipped on each",
        partial(_heavier, weight=2.0),
        "tests/strategies/protocol/test_users.py::test_whom_two_nodes_host_is_asked_by_neither",
        "whom two nodes name is asked by neither",
        trials=400_000,
    ),
    "counts-of-users": Fault(
        "how many users were trained on and held out, told as it was",
        partial(audit_hold_out, attack=Attack(counted=True)),
        "tests/server/test_training.py::test_nothing_about_held_out_users_is_published_by_round",
        "results know the nominal numbers only; the true ones go to private/",
        trials=2_000,
    ),
    "public-coins": Fault(
        "the key of who is held out, made from a public name",
        partial(audit_hold_out, attack=Attack(_MOSTLY, trained_key(_MOSTLY))),
        "tests/server/record/test_run_directory.py::test_who_is_held_out_is_drawn_once",
        "the coins have 32 secret bytes of their own, from which nothing else is made",
        trials=4_000,
        epsilon=0.25,
    ),
    "exact-accuracy": Fault(
        "the exact accuracy on held-out users, told beside a run that counts on its noise",
        partial(audit_hold_out, attack=Attack(exact=True)),
        "tests/server/test_evaluation.py::test_what_is_told_of_held_out_users_is_noisy_charged_and_nominal",
        "what is told of held-out users has noise wherever anything is promised",
        trials=2_000,
    ),
    "counted-twice": Fault(
        "a held-out user counts whole by accuracy and by loss, with the noise of one",
        partial(audit_hold_out, attack=Attack(_MOSTLY, tally=_CountsTwice(loss=True))),
        "tests/privacy/mechanisms/test_tally.py::test_no_user_moves_a_tally_by_more_than_is_accounted_for",
        "a node's counts that come to more than its users can have are left out",
        adjacency=Adjacency.REPLACE,
        trials=12_000,
    ),
    "only-asked": Fault(
        "of the nodes that are to add noise, only those that are asked for users do",
        partial(audit_distributed, adding=1),
        "tests/strategies/rounds/test_distributed_noise.py::test_every_node_adds_its_share_asked_or_not",
        "with noise of nodes a request goes to every registered one",
        trials=200_000,
        needs="opendp",
    ),
    "coins-of-the-server": Fault(
        "what the server sees, claimed to be amplified by coins that it tosses itself",
        partial(audit_distributed, amplified=True),
        "tests/privacy/mechanisms/test_distributed.py::test_the_server_knows_who_is_in_a_round",
        "the figure is derived from the charges with q = 1, by one function",
        trials=200_000,
        needs="opendp",
    ),
    "loose-clip": Fault(
        "nodes of a whole run of a policy, told to clip at six times the norm that noise is for",
        partial(audit_policy, grid=LooseClip),
        "tests/strategies/test_sums.py::test_the_server_half_keeps_to_the_plan",
        "sums that are longer than so many users can make are left out: of users who pull in ways "
        "of their own that is the square root of their number times too long",
        adjacency=Adjacency.REPLACE,
        trials=250,
        needs="transformers",
    ),
    "counted-once": Fault(
        "randomized response composed by dp-accounting's own event, which counts it once",
        _counted_once,
        "tests/privacy/accounting/test_accountant.py::test_a_pure_part_is_charged_each_time",
        "pure promises are composed as such, not by that event",
        adjacency=_LABELS,
    ),
}
