"""``murmuration plan``: what a run will cost, before any data is touched.

Six numbers hang together: epsilon, noise multiplier, rounds, cohort, users and delta. Five are
given, the sixth follows. Where single judgements are sampled (``sims.planning.examples``) the group
size counts too, and epsilon or the noise multiplier follows.
"""

import json
import math
from collections.abc import Callable
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.table import Table

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import hold_out
from murmuration.privacy.mechanisms.hold_out import HoldOut, charges_of
from murmuration.privacy.mechanisms.tally import STEPS, HeldOutRelease, Tally
from murmuration.server.config import DELTA_EXPONENT, parse_delta
from murmuration.server.result import user_isolation
from murmuration.sims.cli import options as about_data
from murmuration.sims.planning import adaptive, examples, solved
from murmuration.sims.planning import optimize as plan_optimize
from murmuration.strategies import support
from murmuration.strategies.settings import ADAPTATIONS, STRATEGIES, VARIANTS

_NAMES = ("epsilon", "noise_multiplier", "rounds", "cohort", "users", "delta")


def plan(
    strategy: Annotated[
        str, typer.Option(help="Algorithm.", click_type=click.Choice(STRATEGIES))
    ] = "uls",
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget.")] = None,
    noise_multiplier: Annotated[
        float | None, typer.Option(help="Standard deviation of the noise over the clip norm.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds.")] = None,
    cohort: Annotated[int | None, typer.Option(help="Expected users in a round.")] = None,
    users: Annotated[int | None, typer.Option(help="Nominal number of users.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta, or n^-1.1: of the number of users.", parser=parse_delta),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="els, group: most judgements that a user keeps.")
    ] = None,
    sampling_probability: Annotated[
        float | None, typer.Option(help="els, group: of each kept judgement, in each round.")
    ] = None,
    variant: Annotated[
        str, typer.Option(help="aup: which.", click_type=click.Choice(VARIANTS))
    ] = "centred",
    adaptation: Annotated[
        str, typer.Option(help="aup centred: by what.", click_type=click.Choice(ADAPTATIONS))
    ] = "quantile",
    adjacency: Annotated[
        Adjacency, typer.Option(help="Which data sets are neighbours.")
    ] = Adjacency.ADD_REMOVE,
    heldout: Annotated[
        float | None,
        typer.Option(
            help="Share of users held out where there is no --test, beside --users.",
            show_default=False,
        ),
    ] = None,
    heldout_epsilon: Annotated[
        float | None,
        typer.Option(
            help="What is told of them may cost. [default: as in run]".replace("[", r"\["),
            show_default=False,
        ),
    ] = None,
    optimize: Annotated[
        bool, typer.Option("--optimize", help="uls, els: find group size and cohort for --compute.")
    ] = False,
    compute: Annotated[
        int | None, typer.Option(help="--optimize: gradients of single judgements in a round.")
    ] = None,
    public: Annotated[
        str | None,
        typer.Option(
            help="--optimize: judgements of people outside training, to learn how long gradients "
            "are; by default a synthetic population.",
            show_default=False,
        ),
    ] = None,
    features: Annotated[str, typer.Option(help="--optimize: as in run.")] = "hashing",
    kind: about_data.Kind = None,
    responses: about_data.Responses = None,
    most_judgements: about_data.MostJudgements = None,
    most_characters: about_data.MostCharacters = None,
    batch_users: Annotated[
        bool, typer.Option("--batch-users", help="As in run; costs nothing that is accounted.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
) -> None:
    """Solve for the one of epsilon, noise multiplier, rounds, cohort, users, delta left out.

    For els and group: for epsilon or the noise multiplier. For adaptive and aup: for the noise.
    With --optimize: for the group size and the cohort that a compute budget is best spent on.
    """
    if strategy == "nonprivate":
        raise InputError("--strategy nonprivate promises nothing: there is nothing to plan")
    if delta == 0:
        if not users:
            raise InputError("--delta n^-1.1 needs --users: that is n")
        delta = users**DELTA_EXPONENT
    given: dict[str, float | int | None] = dict(
        zip(_NAMES, (epsilon, noise_multiplier, rounds, cohort, users, delta), strict=True)
    )
    try:
        coins = _hold_out(heldout, heldout_epsilon, epsilon, adjacency)
        asked = examples.Asked(
            users,
            group_size,
            sampling_probability,
            cohort,
            rounds,
            delta,
            epsilon,
            noise_multiplier,
            coins,
        )
        support.check(f"aup:{variant}" if strategy == "aup" else strategy, adjacency)
        if optimize:
            declared = about_data.schema(kind, responses, most_judgements, most_characters)
            given_public = plan_optimize.Public(public, features, declared)
            weighed = plan_optimize.solve(strategy, asked, compute, given_public, adjacency)
            plan_optimize.report(weighed, as_json)
            return
        of_public = (public, kind, responses, most_judgements, most_characters)
        if compute is not None or any(option is not None for option in of_public):
            raise InputError("--compute, --public and what it holds go with --optimize")
        if strategy in examples.STRATEGIES:
            found = examples.solve(strategy, asked, adjacency)
        elif strategy in adaptive.STRATEGIES:
            _refuse_examples(strategy, group_size, sampling_probability)
            found = adaptive.solve(strategy, variant, adaptation, asked, adjacency)
        elif strategy in solved.STRATEGIES:
            _refuse_examples(strategy, group_size, sampling_probability)
            found = solved.solve(strategy, asked, adjacency)
        else:
            _refuse_examples(strategy, group_size, sampling_probability)
            found = solve(given, adjacency, coins)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None
    missing = next(name for name in _NAMES if given[name] is None)
    found |= _told(coins, int(found["users"]), adjacency)
    if as_json:
        about = {"strategy": strategy, "adjacency": adjacency.value}
        print(json.dumps({**found, **about, "user_isolation": user_isolation(batch_users)}))
        return
    table = Table(title=f"{strategy}, {adjacency.value}", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    for name in found:
        style = "bold" if name == missing else ""
        table.add_row(name.replace("_", " "), f"{found[name]:.6g}", style=style)
    console = Console()
    console.print(table)
    console.print(adjacency.sentence, style="dim")
    console.print(f"Isolation of users from each other: {user_isolation(batch_users)}", style="dim")
    if found["delta"] >= 1 / found["users"]:
        console.print("delta is not below 1 / users: that is no privacy", style="yellow")


def _hold_out(
    share: float | None, told: float | None, epsilon: float | None, adjacency: Adjacency
) -> HoldOut | None:
    """How users are held out, if that is asked for; ValueError or InputError if it cannot be."""
    if share is None:
        if told is not None:
            raise InputError("--heldout-epsilon is about users held out: give --heldout")
        return None
    if told is None and epsilon is None:
        raise InputError("--heldout needs --epsilon or --heldout-epsilon: what figures may cost")
    if told is not None and not 0.0 < told <= (epsilon or told):
        raise InputError(f"--heldout-epsilon must be positive, and at most --epsilon; got {told}")
    return hold_out.usual(share, epsilon or 0.0, adjacency, told or 0.0)


def _told(coins: HoldOut | None, users: int, adjacency: Adjacency) -> dict[str, float]:
    """How many users are held out beside ``users``, and what noise does to the accuracy on them."""
    if coins is None:
        return {}
    held = round(users * coins.share / (1.0 - coins.share))
    std = HeldOutRelease(coins, adjacency, Tally()).std
    return {
        "heldout_users": held,
        "heldout_epsilon": coins.epsilon,
        "heldout_noise": std / STEPS / held if held else math.inf,
    }


def _refuse_examples(strategy: str, *options: float | None) -> None:
    if any(option is not None for option in options):
        raise InputError(
            f"--group-size and --sampling-probability cost nothing with --strategy {strategy}, "
            "where whole users are sampled; leave them out, or plan for els or group"
        )


def solve(
    given: dict[str, float | int | None], adjacency: Adjacency, coins: HoldOut | None = None
) -> dict[str, float]:
    """All six numbers from five; InputError unless exactly one of them is None.

    ``coins`` is how users are held out, if they are.
    """
    missing = [name for name in _NAMES if given[name] is None]
    if len(missing) != 1:
        listed = ", ".join("--" + name.replace("_", "-") for name in (missing or _NAMES))
        raise InputError(f"leave out exactly one of them, the one to solve for: {listed}")
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"--{name.replace('_', '-')} must be positive; got {value}")
    if "cohort" in known and "users" in known and known["cohort"] > known["users"]:
        raise InputError(f"--cohort {known['cohort']} is more than --users {known['users']}")
    if "delta" in known and known["delta"] >= 1:
        raise InputError(f"--delta must be below 1; got {known['delta']}")

    def event(**change: float) -> PoissonGaussian:
        value = {**known, **change}
        return PoissonGaussian(value["cohort"] / value["users"], value["noise_multiplier"])

    def cost(**change: float) -> float:
        rounds = int({**known, **change}["rounds"])
        return accountant.epsilon(
            [(event(**change), rounds), *charges_of(coins).items()],
            adjacency=adjacency,
            delta=known["delta"],
        )

    solvers: dict[str, Callable[[], float]] = {
        "epsilon": cost,
        "noise_multiplier": lambda: accountant.noise_multiplier_for(
            known["epsilon"],
            delta=known["delta"],
            probability=known["cohort"] / known["users"],
            rounds=int(known["rounds"]),
            adjacency=adjacency,
            hold_out=coins,
        ),
        "rounds": lambda: accountant.rounds_for(
            known["epsilon"],
            delta=known["delta"],
            event=event(),
            adjacency=adjacency,
            hold_out=coins,
        ),
        "cohort": lambda: _last(lambda m: cost(cohort=m) <= known["epsilon"], int(known["users"])),
        "users": lambda: _first_users(lambda n: cost(users=n) <= known["epsilon"], known["cohort"]),
        "delta": lambda: accountant.delta_for(
            known["epsilon"], event=event(), rounds=int(known["rounds"]), adjacency=adjacency
        ),
    }
    name = missing[0]
    if name == "delta" and coins:
        raise InputError("--delta is not solved for with --heldout: give it, and leave out another")
    value = solvers[name]()
    if name in ("rounds", "cohort", "users") and value < 1:
        raise InputError(f"no number of {name} meets epsilon = {known['epsilon']:g}; add noise")
    found = {**known, name: value}
    if name in ("rounds", "cohort", "users"):
        # Whole numbers rarely meet the target exactly: say what is really spent.
        found["epsilon"] = cost(**{name: value})
    return found


def _last(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits, 0 if none; ``fits`` turns false once."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _first_users(fits: Callable[[int], bool], cohort: float) -> int:
    """The smallest number of users from ``cohort`` on that fits, 0 if a billion do not."""
    low, high = int(cohort) - 1, int(cohort)
    while not fits(high):
        low, high = high, high * 2
        if high > 10**9:
            return 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
