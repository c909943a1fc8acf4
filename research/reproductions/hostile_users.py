"""The effect of a share of hostile users on a model, with clipping and with a median.

The embedded population, ULS's plan, node half, noise and optimizer; some users mean harm. They are
sampled like all users, and may send any vector within the clip norm. Two attacks:

- *flipped labels*: they follow the protocol and say the opposite of what they think;
- *always against*: each sends the longest vector there is along the model that would have been
  learnt without them, which they are given. Nothing pulls harder against that model.

*The bound.* One user's vector in place of another's is at most 2C away. So in round t the averaged
gradient moves by at most 2C·K_t/M if K_t of the cohort are hostile, f·M on average at a share f,
and θ by at most the sum of these times the step sizes (momentum and averaging only take from it).
That is what hostile users do by themselves. The others' gradients are then taken at another θ: they
pull back here, which this does not count on, and does not bound.

*A median of buckets.* Users are hashed into B buckets, each bucket's sum gets the noise of the
whole sum, and each coordinate moves by B times the median of the buckets. A user is in one bucket,
so all noisy sums together cost what the one noisy sum costs (parallel composition), and the median
is post-processing. The price is noise: B times less of a signal has as much in each bucket, about
√(πB/2) times as much in the median, and the step size is as much smaller. Short steps are less
effective for hostile users too: so the sum is tried with the same steps beside it.

Legend: N users, S sampled users, B buckets, D dimensions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.linear.examples import PairExamples, pair_examples
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.entry import (
    Reproduction,
    Rows,
    distinct,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import line, open_corner
from murmuration.sims.population import population
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.steps.optimizers import OptimizerSettings, ServerOptimizer
from murmuration.strategies.steps.step_size import noise_limited_rate
from murmuration.strategies.uls import DEFAULT_CLIP, RATE_CEILING, UlsPlan, client_update

FLIPPED, AGAINST = "flipped labels", "always against"
SUM = "sum"
_DELTA = 1e-5
_GAIN = 0.01  # in accuracy, that is worth saying


@dataclass(frozen=True, eq=False)
class World:
    """The judging users, the test users, and the plan of every run."""

    examples: PairExamples
    test: PairExamples
    plan: UlsPlan

    @cached_property
    def flipped(self) -> PairExamples:
        """The same judgements, reversed."""
        return replace(self.examples, x_RD=-self.examples.x_RD)


@dataclass(frozen=True)
class Case:
    """The hostile users, their attack, and the aggregation of sums.

    ``buckets`` 1 is the sum of ULS. ``steps`` are those for a median of this number of buckets.
    """

    share: float = 0.0
    attack: str = FLIPPED
    buckets: int = 1
    steps: int = 1

    @property
    def aggregate(self) -> str:
        """The aggregation in words."""
        if self.buckets > 1:
            return f"median of {self.buckets}"
        return SUM if self.steps == 1 else f"{SUM}, steps of {self.steps}"


def reproduced(quick: bool) -> Reproduction:
    """``measured`` on the embedded population at ε = 3, told and drawn."""
    world = made(epsilon=3.0, users=2500, cohort=500, rounds=60 if quick else 200)
    fewer = {"shares": (0.01, 0.1, 0.3), "buckets": (5,), "bucketed": (0.1,), "seeds": 1}
    rows = measured(world, **(fewer if quick else {}))
    return Reproduction(rows, remarks(rows, world), plot=plot(rows))


def measured(
    world: World,
    shares: Sequence[float] = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3),
    buckets: Sequence[int] = (5, 25),
    bucketed: Sequence[float] = (0.01, 0.05, 0.1, 0.2),
    seeds: int = 3,
) -> list[dict[str, Any]]:
    """A row for each attack and share of hostile users, and for medians over ``buckets`` buckets.

    Columns: ``aggregate, attack, share, moved, at_most, relative, accuracy_mean, accuracy_sd``.
    ``moved`` is the distance of θ from its value without hostile users, under the same sampling and
    noise, ``relative`` the same relative to the length of the latter, ``at_most`` the bound on
    their direct effect.
    """
    cases = [Case(share, attack) for attack in (FLIPPED, AGAINST) for share in shares]
    for number in buckets:
        for together in ((number, number), (1, number)):
            cases += [Case(share, AGAINST, *together) for share in (0.0, *bucketed)]
    alone = {SUM: [trained(world, Case(), seed) for seed in range(seeds)]}
    rows = [_row(world, Case(), alone[SUM], alone[SUM])]
    for case in tracked(cases, "training", len(cases)):
        if not case.share:
            alone[case.aggregate] = [trained(world, case, seed) for seed in range(seeds)]
        without = alone[case.aggregate]
        result = without
        if case.share:
            result = [trained(world, case, seed, without[seed]) for seed in range(seeds)]
        rows.append(_row(world, case, result, without))
    return rows


@cache
def made(epsilon: float, users: int, cohort: int, rounds: int) -> World:
    """The embedded population's first users, its test users, and a plan for them."""
    # Length counts as it did by default when what is committed of this was measured.
    features = HashingFeatures(length="log")
    train = Judgements.from_rows(population.train())
    kept = train.select(np.arange(min(users, len(train.user_ids))))
    test = pair_examples(Judgements.from_rows(population.test()), features)
    examples = pair_examples(kept, features)
    plan = UlsPlan.for_epsilon(
        epsilon,
        users=len(kept.user_ids),
        cohort=cohort,
        rounds=rounds,
        delta=_DELTA,
        adjacency=Adjacency.ZERO_OUT,
        clip=UserClip(DEFAULT_CLIP),
    )
    return World(examples, test, plan)


def trained(world: World, case: Case, seed: int, honest_D: np.ndarray | None = None) -> np.ndarray:
    """The model of one run; ``honest_D`` is the model without hostile users."""
    plan, source = world.plan, Randomness(seed)
    generator = np.random.default_rng([11, seed])
    names_N = generator.integers(2**63, size=plan.users, dtype=np.uint64)
    hostile_N = np.zeros(plan.users, dtype=bool)
    hostile_N[generator.permutation(plan.users)[: round(case.share * plan.users)]] = True
    bucket_N = names_N % np.uint64(case.buckets)
    noise = np.random.default_rng([12, seed])
    against_D = np.zeros(world.examples.dimension)
    if honest_D is not None:
        against_D = honest_D / np.linalg.norm(honest_D) * plan.clip.norm
    optimizer = ServerOptimizer(_settings(plan, case.steps), np.zeros(len(against_D), np.float32))
    parameters = {"clip-norm": plan.clip.norm, "group-size": plan.group_size}
    for round_ in range(1, plan.rounds + 1):
        theta = {"theta": optimizer.theta_D}
        users_S = plan.coins.draw(names_N, source, round_)

        def summed(examples: PairExamples, mine_S: np.ndarray) -> np.ndarray:
            work = TrainRequest(theta, {**parameters, "round": round_}, mine_S)  # noqa: B023
            return client_update(examples, work, names_N[mine_S], source)["sum"]

        sums = []
        for bucket in range(case.buckets):
            here_S = users_S[bucket_N[users_S] == bucket]
            bad_S = here_S[hostile_N[here_S]]
            sum_D = summed(world.examples, here_S[~hostile_N[here_S]])
            if case.share and case.attack == FLIPPED:
                sum_D = sum_D + summed(world.flipped, bad_S)
            elif case.share:
                sum_D = sum_D + len(bad_S) * against_D
            sums.append(sum_D + noise.normal(0.0, plan.mechanism.std, len(sum_D)))
        together_D = sums[0] if case.buckets == 1 else case.buckets * np.median(sums, axis=0)
        optimizer.step(round_, together_D / plan.cohort)
    return optimizer.result_D


def _settings(plan: UlsPlan, buckets: int = 1) -> OptimizerSettings:
    """ULS's defaults; the step size is limited by the noise that there is."""
    settings = OptimizerSettings("sgd", 1.0, plan.rounds)
    noise = plan.noise * (1.0 if buckets == 1 else math.sqrt(math.pi * buckets / 2.0))
    return replace(
        settings, rate=noise_limited_rate(noise, settings, RATE_CEILING / plan.clip.norm)
    )


def bound(plan: UlsPlan, share: float, steps: int = 1) -> float:
    """The expected bound on the distance that a share of hostile users can move θ directly, over
    the sampling.
    """
    settings = _settings(plan, steps)
    rates = sum(settings.rate * settings.factor(t) for t in range(1, plan.rounds + 1))
    return 2.0 * share * plan.clip.norm * rates


def alignment(world: World) -> float:
    """The length of the sum of all users' clipped gradients at θ = 0, in clip norms per user."""
    plan, everybody = world.plan, np.arange(world.plan.users)
    parameters = {"clip-norm": plan.clip.norm, "group-size": plan.group_size, "round": 1}
    work = TrainRequest(
        {"theta": np.zeros(world.examples.dimension, np.float32)}, parameters, everybody
    )
    sum_D = client_update(world.examples, work, everybody.astype(np.uint64), Randomness(0))["sum"]
    return float(np.linalg.norm(sum_D)) / (plan.clip.norm * plan.users)


def _row(
    world: World, case: Case, found: Sequence[np.ndarray], without: Sequence[np.ndarray]
) -> dict[str, Any]:
    pairs = list(zip(found, without, strict=True))
    accuracy = [world.test.accuracy(theta_D).by_user for theta_D in found]
    return {
        "aggregate": case.aggregate,
        "attack": case.attack if case.share else None,
        "share": case.share,
        "moved": fmean(float(np.linalg.norm(a - b)) for a, b in pairs),
        "at_most": bound(world.plan, case.share, case.steps) if case.buckets == 1 else None,
        "relative": fmean(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in pairs),
        **mean_sd("accuracy", accuracy),
    }


def remarks(rows: Rows, world: World) -> list[str]:
    """Sentences on the results."""
    length = alignment(world)
    summed = where(rows, aggregate=SUM)
    (honest,) = where(summed, share=0.0)
    hostile = [row for row in summed if row["share"]]
    within = all(row["moved"] <= row["at_most"] for row in hostile)
    result = [
        f"At the start all users' clipped gradients add up to {length:.2f} clip norms a user. "
        f"Hostile users who agree have the longer sum from a share of {length / (1 + length):.0%} "
        "on: clipping bounds what each of them can send, and does not make the others agree.",
        f"θ {'never moved' if within else 'MOVED'} further than hostile users can move it by "
        "themselves.",
    ]
    for attack in (FLIPPED, AGAINST):
        lost = ", ".join(
            f"{honest['accuracy_mean'] - row['accuracy_mean']:.3f} at {row['share']:.0%}"
            for row in where(hostile, attack=attack)
        )
        result.append(f"Accuracy lost to {attack}: {lost}.")
    result += list(_on_medians(rows))
    return result


def _on_medians(rows: Rows) -> Iterator[str]:
    """Yield sentences on whether a median helps: at each share, against sums under the same attack.

    Its steps are shorter, which helps by itself: so also against a sum with the same steps.
    """
    for name in distinct(rows, "aggregate"):
        kind, _, number = name.rpartition(" ")
        if not kind.startswith("median"):
            continue
        for sums in (SUM, f"{SUM}, steps of {number}"):
            same = where(rows, aggregate=sums, attack=(None, AGAINST))
            of_sum = {row["share"]: row["accuracy_mean"] for row in same}
            gains = {
                row["share"]: row["accuracy_mean"] - of_sum[row["share"]]
                for row in where(rows, aggregate=name)
            }
            helps = [f"{share:.0%}" for share, gain in gains.items() if gain > _GAIN]
            said = f"helps at {', '.join(helps)}" if helps else "helps nowhere"
            told = ", ".join(f"{gain:+.3f} at {share:.0%}" for share, gain in gains.items())
            yield f"The {name} buckets against the {sums}: {said} ({told})."


def plot(rows: Rows) -> Figure:
    """Accuracy, and how far θ moved, against the share of hostile users."""
    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    summed = where(rows, aggregate=SUM)
    for attack in (FLIPPED, AGAINST):
        same = where(summed, attack=(None, attack))
        line(left, same, "share", "accuracy_mean", "o-", ms=4, label=attack)
        line(right, same, "share", "moved", "o-", ms=4, label=attack)
    for name in distinct(rows, "aggregate"):
        if name != SUM:
            label = f"{name}{' buckets' * name.startswith('median')}, {AGAINST}"
            style = "s--" if name.startswith("median") else "x:"
            same = where(rows, aggregate=name)
            line(left, same, "share", "accuracy_mean", style, ms=4, label=label)
    line(right, summed, "share", "at_most", ":", color="0.5", label="at most, by themselves")
    left.axhline(0.5, color="0.7", lw=1)
    left.set(xlabel="share of hostile users", ylabel="accuracy on other users")
    right.set(xlabel="share of hostile users", ylabel="how far θ moved")
    for axes in (left, right):
        axes.legend(frameon=False, fontsize=7)
        open_corner(axes)
    return figure
