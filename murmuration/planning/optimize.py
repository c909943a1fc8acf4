"""``murmuration plan --optimize``: group size and cohort for a compute budget, before training.

"Estimate-and-Double" (``planning.estimate_and_double``) with L(G) estimated from public or
synthetic users (``planning.gradient_norms``) and σ(M) from the accountant, beside its rivals and
beside example-level sampling at the same compute, by the noise per coordinate of the averaged
gradient. It uses no private data, so it has no privacy cost.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from murmuration.planning import estimate_and_double
from murmuration.planning.estimate_and_double import Point, Space
from murmuration.planning.gradient_norms import GroupNorms
from murmuration.preference.data.columns import parse_columns
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.models import preference_model
from murmuration.privacy.accounting import accountant
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.strategies.els import ElsPlan
from murmuration.strategies.planning import PlanQuery
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE
from murmuration.strategies.uls import DEFAULT_CLIP
from murmuration.terminal.tables import console, table_of

STRATEGIES = ("uls", "els")
#: Where the doubling starts, as in the paper's experiments.
START = Point(1, 32)
_SYNTHETIC = "murmuration.population:test"

Found = dict[str, Any]


@dataclass(frozen=True)
class Public:
    """The data from which L(G) is estimated: a source of judgements, or the embedded synthetic
    population.
    """

    source: str | None = None
    features: str = "hashing"
    schema: Schema = PAIRS
    columns: str = ""
    items: str = ""

    @property
    def words(self) -> str:
        """A description."""
        return self.source or "the embedded synthetic population"

    def norms(self) -> tuple[GroupNorms, str]:
        """Loads the judgements, computes features; also which preference model fits them.

        Raises InputError for what is wrong there.
        """
        judgements = load_judgements(
            self.source or _SYNTHETIC,
            columns=parse_columns(self.columns) if self.source else None,
            schema=self.schema,
        )
        examples = pair_examples(
            judgements, feature_map(parse_features(self.features, items=self.items))
        )
        if examples.kind == "thumbs":
            raise InputError("--optimize reads pairs, the best of several or rankings, not thumbs")
        name = "btl" if examples.width == 1 else "plackett-luce"
        model = preference_model(name, examples.kind, examples.width)
        try:
            return GroupNorms.of(examples, model), name
        except ValueError as error:
            raise InputError(f"--public {self.words}: {error}") from None


def solve(asked: PlanQuery, compute: int | None, public: Public, adjacency: Adjacency) -> Found:
    """The recommended group size and cohort, with everything that was weighed.

    Keys: ``recommended`` (a row), ``rows`` (each choice with ``name, group_size, cohort, compute,
    noise_multiplier, clip_norm, noise, signal_to_noise`` and ``over_recommended``, the ratio of
    noises; None where a figure does not apply), ``steps`` of the doubling, ``lengths`` L by group
    size, ``prefer`` (uls or els), ``why`` in words, and what was given.

    Raises:
        InputError: something is missing, given too much or out of range.
        ValueError: no amount of noise meets the target.
    """
    strategy = asked.strategy
    if strategy not in STRATEGIES:
        raise InputError(
            f"--optimize compares uls and els, not {strategy}; adaptive, aup and dp-fedavg sample "
            "users as uls does, so plan for uls and use its --group-size and --cohort"
        )
    if type(compute) is not int or compute < 1:
        raise InputError("--optimize needs --compute, the judgements whose gradients a round takes")
    for name in ("users", "rounds", "delta", "epsilon"):
        if not (value := getattr(asked, name)) or value < 0:
            raise InputError(f"--optimize needs --{name}, a positive number")
    for name in ("group_size", "cohort", "sampling_probability", "noise_multiplier"):
        if getattr(asked, name) is not None:
            option = "--" + name.replace("_", "-")
            raise InputError(f"--optimize finds {option}: leave it out")
    users, rounds = asked.users or 0, asked.rounds or 0
    epsilon, delta = asked.epsilon or 0.0, asked.delta or 0.0
    start = Point(START.group_size, min(START.cohort, users, compute))
    space = Space(start, compute, users)

    @cache
    def multiplier(cohort: int) -> float:
        return accountant.noise_multiplier_for(
            epsilon, delta=delta, probability=cohort / users, rounds=rounds, adjacency=adjacency
        )

    norms, model = public.norms()
    steps = estimate_and_double.estimate_and_double(space, norms.length, multiplier)
    chosen = steps[-1].to if steps else start

    def row(name: str, point: Point) -> Found:
        spread = estimate_and_double.noise(point, norms.length, multiplier)
        return _row(
            name,
            norms,
            spread,
            group_size=point.group_size,
            cohort=point.cohort,
            compute=norms.used(point.group_size) * point.cohort,
            noise_multiplier=multiplier(point.cohort),
            clip_norm=norms.length(point.group_size),
        )

    recommended = row("estimate-and-double", chosen)
    others = [
        row(name, at)
        for name, at in estimate_and_double.rivals(space, norms.length, multiplier).items()
    ]
    default = Point(DEFAULT_GROUP_SIZE, min(users, compute // DEFAULT_GROUP_SIZE))
    if default.cohort:
        others.append(row("default group size", default))
    frontier = [estimate_and_double.noise(at, norms.length, multiplier) for at in space.frontier()]
    others.append(_row("random (on average)", norms, sum(frontier) / len(frontier)))
    rows = [recommended, *others]
    els = _els_row(asked, compute, norms, adjacency)
    for each in (*rows, els):
        if each is not None and each["noise"] is not None:
            each["over_recommended"] = each["noise"] / recommended["noise"]
    result: Found = {
        "strategy": strategy,
        "adjacency": adjacency.value,
        **{name: getattr(asked, name) for name in ("epsilon", "delta", "users", "rounds")},
        "compute": compute,
        "public": public.words,
        "model": model,
        "declared": public.schema.options,
        "prefer": "els" if els and els["noise"] and els["over_recommended"] < 1.0 else "uls",
        "recommended": recommended if strategy == "uls" else els,
        "rows": [*rows, els] if els else rows,
        "steps": [
            {
                "group_size": step.at.group_size,
                "cohort": step.at.cohort,
                "group_ratio": None if math.isinf(step.group_ratio) else step.group_ratio,
                "cohort_ratio": None if math.isinf(step.cohort_ratio) else step.cohort_ratio,
            }
            for step in steps
        ],
        "lengths": {str(size): length for size, length in norms.lengths.items()},
    }
    return {**result, "why": _why(result, els, norms)}


def _row(name: str, norms: GroupNorms, spread: float, **more: Any) -> Found:
    empty = dict.fromkeys(
        ("group_size", "cohort", "compute", "noise_multiplier", "clip_norm"), None
    )
    signal = norms.drift / (spread * math.sqrt(norms.dimension))
    return {"name": name, **empty, **more, "noise": spread, "signal_to_noise": signal}


def _els_row(
    asked: PlanQuery, compute: int, norms: GroupNorms, adjacency: Adjacency
) -> Found | None:
    """Example-level sampling at the same compute, with the median user's judgements as its G.

    None without a guarantee under the adjacency.
    """
    users, group_size = asked.users or 0, norms.median_judgements
    probability = min(1.0, compute / (group_size * users))
    clip = ExampleClip(norms.length(1))
    try:
        plan = ElsPlan.for_epsilon(
            asked.epsilon or 0.0,
            users=users,
            group_size=group_size,
            probability=probability,
            rounds=asked.rounds,
            delta=asked.delta,
            adjacency=adjacency,
            clip=clip,
        )
    except Unsupported:
        return None
    return _row(
        "els",
        norms,
        plan.noise,
        group_size=group_size,
        sampling_probability=probability,
        compute=plan.divisor,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=clip.norm,
    )


def _why(found: Found, els: Found | None, norms: GroupNorms) -> list[str]:
    rows = found["rows"]
    best = rows[0]
    least = next(row for row in rows if row["name"] == "least noise")
    sizes = list(norms.lengths)
    words = [
        f"Averaging {best['group_size']} of a user's judgements shortens the median gradient from "
        f"{norms.length(1):.3g} to {best['clip_norm']:.3g}, and the noise with it. "
        f"The median user has {norms.median_judgements}: beyond that, longer groups help little.",
        f"Compute is what a round takes at most; users with fewer than {best['group_size']} "
        f"judgements leave it at about {best['compute']:.0f}.",
    ]
    if found["steps"] and best["group_size"] > sizes[-1]:
        words.append("Nobody in --public has as many judgements as the group size.")
    if least["over_recommended"] < 0.995:
        words.append(
            f"Doubling step by step misses the least noise on the grid, at group size "
            f"{least['group_size']} and cohort {least['cohort']}, by "
            f"{1 / least['over_recommended'] - 1:.1%}."
        )
    if best["clip_norm"] > DEFAULT_CLIP:
        words.append(
            f"Noise is for clipping at that length. The default, --clip-norm {DEFAULT_CLIP:g}, "
            "shrinks gradients and noise alike, so the recommendation stays; users then count "
            "equally."
        )
    if els is None:
        words.append(f"els has no guarantee under {found['adjacency']}, so there is no choice.")
    else:
        words.append(
            f"Prefer {found['prefer']}: at this compute els has {els['over_recommended']:.3g} "
            "times the noise of uls (U eq. 7). Noise is not everything: els also uses fewer "
            "judgements of heavy users."
        )
    return words


def report(found: Found) -> None:
    """Print the rows as a table, and why."""
    terminal = console(width=120)
    title = (
        f"(G, M) for {found['compute']} gradients a round, ε = {found['epsilon']:g}, "
        f"{found['adjacency']}"
    )
    columns = {
        "name": "",
        "group_size": "G",
        "cohort": "M",
        "compute": "compute",
        "noise_multiplier": "σ",
        "clip_norm": "clip norm",
        "noise": "noise",
        "signal_to_noise": "signal/noise",
        "over_recommended": "noise ratio",
    }
    terminal.print(table_of(found["rows"], columns, title, bold=found["recommended"]))
    for words in found["why"]:
        terminal.print(f"• {words}", markup=False)
    best = found["recommended"]
    if found["strategy"] == "uls":
        model = "" if found["model"] == "btl" else f"--model {found['model']} "
        model += f"{found['declared']} " if found["declared"] else ""
        terminal.print(
            f"murmuration run --strategy uls {model}--group-size {best['group_size']} "
            f"--cohort {best['cohort']} {_clip_option(best['clip_norm'])}"
            f"--epsilon {found['epsilon']:g} --rounds {found['rounds']}",
            style="bold",
            markup=False,
        )
    terminal.print(f"gradients' lengths from {found['public']}; they cost no privacy", style="dim")


def _clip_option(length: float) -> str:
    """A clip norm below the median length leaves σ·L/M as it is, relative to what is learned."""
    return "" if length >= DEFAULT_CLIP else f"--clip-norm {length:.3g} "
