"""Recompute the epsilon of a run's training by dp-accounting, with nothing of Murmuration.

    pip install 'dp-accounting>=0.6,<0.7'
    python recompute.py             # or: python recompute.py events.json

``murmuration ledger FOLDER --events`` writes both files. Prints a JSON line, and exits with 1 if
the two differ by more than ``TOLERANCE``, or a release counts as paid for and is not. What
dp-accounting has no event for is left out of the comparison, and named with the rule by which
Murmuration counts it (``RULES``).
"""

import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: The largest difference that rounding and truncation explain.
TOLERANCE = 1e-4

#: What is counted by a rule of Murmuration, by the kind of event.
RULES = {
    "hold-out": "hold-out: each user is held out by a secret coin of probability h, so the run is "
    "(1 - h) of its training and h of what is said of held-out users, which is (e_H, 0)-DP. If a "
    "user comes or goes, delta at log(A) is the larger of (1 - h) sum p(y) delta(log((A - h y) / "
    "(1 - h))) and sum p(y) s delta(log(A (1 - h) / s)), s = 1 - A h y, over y = exp(+-e_H) with "
    "p(y) = 1 / (1 + y); if a user is replaced, epsilon is the larger of e_H and the training's",
    "pure-choice": "choices: the epsilon of a private choice of later parameters is added",
    "on-part": "parts: nobody is in two parts, so the dearest part is what a user costs",
    "on-grid": "noise on a grid: what discrete noise may cost beyond the continuous Gaussian is a "
    "mass at an infinite loss in each round",
    "randomized-labels": "randomized labels: randomized response composed as often as labels were "
    "told, or added up",
    "group-gaussian": "groups: the figure is of one example; that of a user with k is k epsilon at "
    "delta (exp(k epsilon) - 1) / (exp(epsilon) - 1), at the best point of the curve",
    "banded-gaussian": "banded noise: users are in one of as many groups as there are bands, whose "
    "turn a round is; the noise of a round is correlated with that of the rounds before, in which "
    "none of the group were, so a round costs its group one sampled Gaussian",
    "blt-gaussian": "buffered linear Toeplitz noise: users are in one of as many groups as rounds "
    "are to be apart, all of whom take part when it is their turn; what one of them adds to C x is "
    "no longer than the clip norm, so all rounds are one Gaussian release, spread over time, which "
    "is charged whole with the first",
    "blt-later": "later rounds with that noise: charged with the first",
    "random-stopping": "the best of K candidates, K truncated negative binomial (eta, gamma): "
    "delta(epsilon) = E[K] D(epsilon - (1 + eta) s) + (1 + e^epsilon) (E[K] distance + 1e-10), D "
    "the largest delta of a candidate's sampled Gaussians and hold-out, in either direction, and s "
    "the least number with (1 - gamma) D(s) <= gamma (e^s - 1)",
    "unprotected": "releases without protection: their epsilon is infinite",
}
_WRAPPED = ("on-part", "on-grid")
#: What costs as much as a Poisson-sampled Gaussian sum, by their rules.
_SAMPLED = ("group-gaussian", "banded-gaussian", "blt-gaussian")
_COMPUTED = ("poisson-gaussian", "mixture-gaussian", "pure-dp")

Charges = list[tuple[Mapping[str, Any], int]]


def by_our_rules(charges: Iterable[tuple[Mapping[str, Any], int]]) -> list[str]:
    """Return the rules for what dp-accounting has no event for."""
    kinds: set[str] = set()
    for event, _ in charges:
        while True:
            kinds.add(event["kind"])
            if event["kind"] not in _WRAPPED:
                break
            event = event["event"]
    others = sorted(kinds - RULES.keys() - {*_COMPUTED})
    rules = [rule for kind, rule in RULES.items() if kind in kinds]
    return rules + [f"{kind}: by a rule of the package that brings it" for kind in others]


def training(charges: Iterable[tuple[Mapping[str, Any], int]]) -> list[Charges]:
    """The charges that dp-accounting has events for, by part of the users."""
    everybody: Charges = []
    divisions: dict[int, dict[int, Charges]] = {}
    for event, times in charges:
        of_part = everybody
        if event["kind"] == "on-part":
            part, event = event["part"], event["event"]
            of_part = divisions.setdefault(event.get("bands", 0), {}).setdefault(part, [])
        if event["kind"] == "on-grid":
            event = event["event"]
        if event["kind"] in _SAMPLED:
            event = {
                "kind": "poisson-gaussian",
                "probability": event.get("probability", 1.0),
                "noise_multiplier": event["noise_multiplier"],
            }
        if event["kind"] in _COMPUTED:
            of_part.append((event, times))
    result: list[Charges] = []
    of_division = ([parts[part] for part in sorted(parts)] for parts in divisions.values())
    for one in itertools.product(*of_division):
        exposed = [*everybody, *itertools.chain(*one)]
        if exposed not in result:
            result.append(exposed)
    return result


def unpaid(charges: Iterable[tuple[Mapping[str, Any], int]]) -> int:
    """The number of later rounds of buffered noise that were charged without their first round."""
    left: Counter[tuple[float, ...]] = Counter()  # rounds that are paid for, and not charged
    for event, times in charges:
        first = event["event"] if event["kind"] == "on-grid" else event
        if first["kind"] == "blt-gaussian":
            left[_run_of(first)] += (first["rounds"] - 1) * times
        if event["kind"] == "blt-later":
            left[_run_of(event)] -= times
    return sum(max(0, -rounds) for rounds in left.values())


def _run_of(event: Mapping[str, Any]) -> tuple[float, ...]:
    """The parameters that a first round of buffered noise shares with its later ones."""
    return event["rounds"], event["separation"], event["noise_multiplier"]


def epsilon(
    charges: Iterable[tuple[Mapping[str, Any], int]],
    *,
    adjacency: str,
    delta: float,
    interval: float = 1e-4,
) -> float:
    """The epsilon of the training alone, of its most expensive part, by dp-accounting.

    Its ``PLDAccountant`` makes the same of ``GaussianDpEvent``, ``PoissonSampledDpEvent`` and
    ``MixtureOfGaussiansDpEvent``. It has no event for a test or a choice
    that is (epsilon, 0)-DP, and counts repetitions of its randomized response once: these are
    composed as privacy parameters.
    """
    return max(_composed(part, adjacency, delta, interval) for part in training(charges))


def _composed(charges: Charges, adjacency: str, delta: float, interval: float) -> float:
    # Here, since this takes a second, for a run's end alone.
    from dp_accounting.pld import privacy_loss_distribution as pld

    total = pld.identity(value_discretization_interval=interval)
    for event, times in charges:
        total = total.compose(_loss(event, adjacency, interval).self_compose(times))
    return float(total.get_epsilon_for_delta(delta))


def _loss(event: Mapping[str, Any], adjacency: str, interval: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    grid: dict[str, Any] = {"value_discretization_interval": interval}
    if event["kind"] == "pure-dp":
        promise = common.DifferentialPrivacyParameters(event["epsilon"], 0.0)
        return pld.from_privacy_parameters(promise, **grid)
    probability, noise = event["probability"], event["noise_multiplier"]
    if event["kind"] == "poisson-gaussian":
        relation = {
            "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
            "zero-out": NeighboringRelation.REPLACE_SPECIAL,
        }.get(adjacency, NeighboringRelation.REPLACE_ONE)
        return pld.from_gaussian_mechanism(
            noise, sampling_prob=probability, neighboring_relation=relation, **grid
        )
    if adjacency not in ("add-remove", "zero-out"):
        raise ValueError(f"sampled examples have no guarantee under {adjacency}")
    size = event["group_size"]
    weights = [
        math.comb(size, k) * probability**k * (1.0 - probability) ** (size - k)
        for k in range(size + 1)
    ]
    return pld.from_mixture_gaussian_mechanism(noise, list(range(size + 1)), weights, **grid)


def main(path: str) -> int:
    """Print what the events in a file come to; 1 if it is not what the file says."""
    stated = json.loads(Path(path).read_text(encoding="utf-8"))
    charges = [(charge["event"], charge["times"]) for charge in stated["charges"]]
    terms = {name: stated[name] for name in ("adjacency", "delta", "interval")}
    theirs = epsilon(charges, **terms) if any(training(charges)) else None
    ours = stated["training_epsilon"]
    apart = None if theirs is None or ours is None else abs(theirs - ours)
    report = {
        "training_epsilon": {"dp-accounting": theirs, "murmuration": ours},
        "difference": apart,
        "whole_epsilon_by_murmuration": stated["epsilon"],
        "not_by_dp_accounting": by_our_rules(charges),
    }
    if without := unpaid(charges):
        report["releases_that_nothing_paid_for"] = without
    print(json.dumps(report))
    return 1 if without or (apart is not None and not apart <= TOLERANCE) else 0


if __name__ == "__main__":
    beside = str(Path(__file__).with_name("events.json"))
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else beside))
