"""``murmuration plan``: what a run will cost, before any data is touched."""

from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import Json, add_parameters, help_of, meaning, print_json
from murmuration.cli.setting_options import of_setting, parameters_of
from murmuration.planning.plan import plan as solve_plan
from murmuration.planning.plan_table import print_plan
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.settings.plan_options import own_fields, plan_fields


def plan(
    *,
    strategy: Annotated[str, of_setting("strategy")] = "uls",
    epsilon: Annotated[float | None, typer.Option(help=help_of("epsilon"))] = None,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise, divided by the clip norm."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help=help_of("rounds"))] = None,
    cohort: Annotated[
        int | None,
        typer.Option(
            help=f"{meaning('cohort')} Left out beside another number, it is chosen as in "
            "run: a fifth of --users, at least 100 (or all) and at most 500."
        ),
    ] = None,
    users: Annotated[int | None, typer.Option(help=help_of("users"))] = None,
    delta: Annotated[str | None, typer.Option(help=help_of("delta"))] = None,
    group_size: Annotated[
        int | None, typer.Option(help=f"{meaning('group_size')} For els and group.")
    ] = None,
    sampling_probability: Annotated[float | None, of_setting("sampling_probability")] = None,
    adjacency: Annotated[
        Adjacency, typer.Option(help="Which data sets are neighbours.")
    ] = Adjacency.ADD_REMOVE,
    heldout: Annotated[
        float | None,
        typer.Option(
            help=f"{meaning('heldout')} Besides --users.",
            show_default=False,
        ),
    ] = None,
    heldout_epsilon: Annotated[
        float | None,
        typer.Option(
            help=rf"{meaning('heldout_epsilon')} \[default: as in run]",
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
    features: Annotated[
        str, typer.Option(help=f"{meaning('features')} For --optimize.")
    ] = "hashing",
    batch_users: Annotated[
        bool, typer.Option("--batch-users", help=help_of("batch_users"))
    ] = False,
    as_json: Json = False,
    **rows: Any,
) -> None:
    """Solve for epsilon, noise, rounds, cohort, users or delta.

    That one of them is solved for which is left out. For els and group: for epsilon or the noise
    multiplier. For adaptive and aup: for the noise. With --optimize: for the group size and the
    cohort that a compute budget is best spent on.
    """
    given = {name: value for name, value in locals().items() if name not in ("as_json", "rows")}
    numbers = solve_plan(**given, **rows)
    if as_json:
        print_json(numbers)
    elif optimize:
        from murmuration.planning import optimize as optimize_plan

        optimize_plan.report(numbers)
    else:
        print_plan(numbers)


add_parameters(plan, about_data.row_parameters("labels"), before="batch_users")
add_parameters(plan, parameters_of([*own_fields(), *plan_fields()]), before="adjacency")
