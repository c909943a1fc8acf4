"""``murmuration plan``: what a run will cost, before any data is touched.

Six numbers hang together: epsilon, noise multiplier, rounds, cohort, users and delta. Five are
given, the sixth follows; each strategy says how (``strategies.planning``). Where single judgements
are sampled the group size counts too, and epsilon or the noise multiplier follows.
"""

import inspect
import json
import math
from dataclasses import replace
from typing import Annotated, Any

import click
import typer
from rich.table import Table

from murmuration.cli import about_data
from murmuration.planning import advice
from murmuration.preference.data.rows import InputError
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import hold_out
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.privacy.mechanisms.tally import STEPS, HeldOutRelease, Tally
from murmuration.reporting.live.terminal import Terminal
from murmuration.strategies import registry
from murmuration.strategies.config import DELTA_EXPONENT, OWN_SETTINGS, parse_delta
from murmuration.strategies.planning import SIX, Asked
from murmuration.strategies.settings import about, user_isolation, usual_cohort


def _choices(name: str) -> tuple[str, ...]:
    return about(OWN_SETTINGS[name][0]).choices


def planned(
    strategy: Annotated[
        str, typer.Option(help="Algorithm.", click_type=click.Choice(list(registry.strategies())))
    ] = "uls",
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget.")] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise, divided by the clip norm."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds.")] = None,
    cohort: Annotated[
        int | None,
        typer.Option(
            help="Expected users in a round. Left out beside another number, it is chosen as in "
            "run: a fifth of --users, at least 100 (or all) and at most 500."
        ),
    ] = None,
    users: Annotated[
        int | None, typer.Option(help="Number of users to train on, as a public figure.")
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Delta, or n^-1.1: of the number of users.", parser=parse_delta),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="els, group: most judgements that a user keeps.")
    ] = None,
    sampling_probability: Annotated[
        float | None,
        typer.Option(help="els, group: probability of each kept judgement to be in a round."),
    ] = None,
    variant: Annotated[
        str,
        typer.Option(help="aup: variant.", click_type=click.Choice(_choices("variant"))),
    ] = "centred",
    adaptation: Annotated[
        str,
        typer.Option(
            help="aup centred: how the radius adapts.",
            click_type=click.Choice(_choices("adaptation")),
        ),
    ] = "quantile",
    adjacency: Annotated[
        Adjacency, typer.Option(help="Which data sets are neighbours.")
    ] = Adjacency.ADD_REMOVE,
    heldout: Annotated[
        float | None,
        typer.Option(
            help="Share of users held out, besides --users, where there is no --test.",
            show_default=False,
        ),
    ] = None,
    heldout_epsilon: Annotated[
        float | None,
        typer.Option(
            help="Budget for the accuracy on them. [default: as in run]".replace("[", r"\["),
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
    columns: about_data.Columns = None,
    user_column: about_data.UserColumn = None,
    one_user_per_row: about_data.OneUserPerRow = None,
    split: about_data.Split = None,
    data_config: about_data.DataConfig = None,
    kind: about_data.Kind = None,
    responses: about_data.Responses = None,
    max_judgements: about_data.MaxJudgements = None,
    max_characters: about_data.MaxCharacters = None,
    batch_users: Annotated[
        bool, typer.Option("--batch-users", help="As in run; does not change epsilon.")
    ] = False,
) -> dict[str, Any]:
    """All numbers of a plan, and what they mean, from what the options of ``plan`` say.

    Raises:
        InputError: numbers that do not determine a plan.
    """
    for name, value in (("variant", variant), ("adaptation", adaptation)):
        if value not in _choices(name):
            raise InputError(f"--{name} must be one of {', '.join(_choices(name))}; got {value!r}")
        if value != OWN_SETTINGS[name][0].default and strategy not in OWN_SETTINGS[name][1]:
            raise InputError(f"--{name} is for --strategy aup, not {strategy}")
    if strategy == "nonprivate":
        raise InputError("--strategy nonprivate promises nothing: there is nothing to plan")
    if delta == 0:
        if not users:
            raise InputError("--delta n^-1.1 needs --users: that is n")
        delta = users**DELTA_EXPONENT
    given = (epsilon, noise_multiplier, rounds, users, delta)
    sampled = not registry.named(strategy).rounds and sampling_probability is None
    choose = cohort is None and users and sampled and not optimize and given.count(None) == 1
    if choose and users:
        cohort = usual_cohort(users)
    asked = Asked(
        strategy,
        users,
        group_size,
        sampling_probability,
        cohort,
        rounds,
        delta,
        epsilon,
        noise_multiplier,
        variant=variant,
        adaptation=adaptation,
    )
    try:
        coins = _hold_out(heldout, heldout_epsilon, epsilon, adjacency)
        asked = replace(asked, hold_out=coins)
        registry.check_adjacency(strategy, adjacency)
        if optimize:
            declared = about_data.schema(
                kind, responses, max_judgements, max_characters, None, one_user_per_row
            )
            from murmuration.planning import optimize as optimize_plan

            named = about_data.renamed(columns, user_column)
            source = about_data.located(public, split, data_config)
            given_public = optimize_plan.Public(source, features, declared, named)
            return optimize_plan.solve(strategy, asked, compute, given_public, adjacency)
        of_public = (public, kind, responses, max_judgements, max_characters, columns)
        of_public += (user_column, one_user_per_row, split, data_config)
        if compute is not None or any(option is not None for option in of_public):
            raise InputError("--compute, --public and options about its rows need --optimize")
        found = registry.named(strategy).solve(asked, adjacency)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(str(error)) from None
    return {
        **found,
        **_told(coins, int(found["users"]), adjacency),
        "strategy": strategy,
        "adjacency": adjacency.value,
        "user_isolation": user_isolation(batch_users),
        "chosen": "cohort" if choose else "",
    }


def plan(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line.")] = False,
    **given: Any,
) -> None:
    """Solve for the one of epsilon, noise multiplier, rounds, cohort, users, delta left out.

    For els and group: for epsilon or the noise multiplier. For adaptive and aup: for the noise.
    With --optimize: for the group size and the cohort that a compute budget is best spent on.
    """
    found = planned(**given)
    if as_json:
        print(json.dumps(found))
    elif given["optimize"]:
        from murmuration.planning import optimize as optimize_plan

        optimize_plan.report(found)
    else:
        left_out = [name for name in SIX if given[name] is None and name != found["chosen"]]
        _report(found, left_out[0] if left_out else "")


# Typer reads options from the signature; those of ``planned`` take the place of ``given``.
_OPTIONS = inspect.signature(planned).parameters.values()
_JSON = inspect.signature(plan).parameters["as_json"]
plan.__signature__ = inspect.Signature([*_OPTIONS, _JSON])  # type: ignore[attr-defined]
plan.__annotations__ = {p.name: p.annotation for p in (*_OPTIONS, _JSON)}  # type: ignore[attr-defined]


#: Upper bounds, as a table names them.
_ATTACKS = {
    "tpr_at_1_percent_fpr": "membership TPR at 1 % FPR, at most",
    "tpr_at_0_1_percent_fpr": "membership TPR at 0.1 % FPR, at most",
    "gdp_mu": "μ of Gaussian DP, at most",
}


def _report(found: dict[str, Any], missing: str) -> None:
    """Print the numbers as a table, which says of each that was not given where it is from."""
    adjacency = Adjacency(found["adjacency"])
    table = Table(title=f"{found['strategy']}, {adjacency.value}", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    for name, value in found.items():
        if not isinstance(value, str):
            origin = {missing: "solved for", found["chosen"]: "chosen: see --cohort"}.get(name, "")
            style = "bold" if name == missing else ""
            shown = _ATTACKS.get(name, name.replace("_", " "))
            table.add_row(shown, f"{value:.6g}", origin, style=style)
    console = Terminal()
    console.print(table)
    console.print(adjacency.sentence, style="dim")
    console.print(f"Isolation of users from each other: {found['user_isolation']}", style="dim")
    features = advice.features_for(int(found["users"]), found["epsilon"])
    console.print(f"For this many people: --features {features.name}, {features.why}", style="dim")
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
