"""``murmuration plan``: what a run will cost, before any data is touched."""

from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import Json, add_parameters, print_json
from murmuration.cli.setting_options import planned_parameters


def plan(
    *,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Standard deviation of the noise, divided by the clip norm."),
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
    as_json: Json = False,
    **settings: Any,
) -> None:
    """Solve for epsilon, noise, rounds, cohort, users or delta.

    That one of them is solved for which is left out. For els and group: for epsilon or the noise
    multiplier. For adaptive and aup: for the noise. With --optimize: for the group size and the
    cohort that a compute budget is best spent on.
    """
    from murmuration.planning.plan import plan as solve_plan
    from murmuration.planning.plan_table import print_plan

    numbers = solve_plan(
        noise_multiplier=noise_multiplier,
        optimize=optimize,
        compute=compute,
        public=public,
        **settings,
    )
    if as_json:
        print_json(numbers)
    elif optimize:
        from murmuration.planning import optimize as optimize_plan

        optimize_plan.report(numbers)
    else:
        print_plan(numbers)


add_parameters(plan, about_data.row_parameters("labels"), before="as_json")
add_parameters(plan, planned_parameters())
