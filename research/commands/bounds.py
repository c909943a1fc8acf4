"""``murmuration bounds``: what the papers prove about the error of a run of this size."""

from typing import Annotated

import typer
from rich.table import Table

from murmuration.cli.options import Json, print_json
from murmuration.preference.data.errors import InputError
from murmuration.research.theory.bounds import Bound, Case, all_bounds
from murmuration.terminal.tables import console, table_of


def bounds(
    users: Annotated[int, typer.Option(help="Number of users. n.")],
    judgements: Annotated[int, typer.Option(help="Judgements of each user. m.")],
    dimension: Annotated[int, typer.Option(help="Number of features, d.")],
    epsilon: Annotated[float, typer.Option(help="Privacy budget. Of a user.")],
    delta: Annotated[float, typer.Option(help="Delta of the promise. 0 for pure epsilon.")],
    feature_bound: Annotated[
        float, typer.Option(help="L: bound on the length of a feature vector.")
    ] = 1.0,
    model_bound: Annotated[
        float, typer.Option(help="B: bound on the length of the true model.")
    ] = 1.0,
    coverage: Annotated[
        float | None,
        typer.Option(
            help="Kappa: least eigenvalue of the differences' second moments; "
            "by default that of independent features in all directions.",
            show_default=False,
        ),
    ] = None,
    failure: Annotated[
        float, typer.Option(help="Alpha: probability that upper bounds fail.")
    ] = 0.05,
    responses: Annotated[int, typer.Option(help="Most responses of a judgement. K.")] = 2,
    as_json: Json = False,
) -> None:
    """Evaluate the papers' bounds on the error of a reward model.

    They are rates: true up to constants that the papers do not state. Where a proof gives its
    constants, the bound with them is shown, too.
    """
    try:
        case = Case(
            users,
            judgements,
            dimension,
            epsilon,
            delta,
            feature_bound,
            model_bound,
            coverage,
            failure,
            responses,
        )
    except ValueError as error:
        raise InputError(str(error)) from None
    rows = all_bounds(case)
    if as_json:
        given = {"kappa": case.kappa, "gamma": case.gamma, "total": case.total}
        print_json({**given, "rows": [bound.row() for bound in rows]})
        return
    terminal = console()
    terminal.print(_table(rows))
    terminal.print(
        f"γ = {case.gamma:.4g}, κ = {case.kappa:.4g}, N = {case.total}. Rates are without "
        "constants: compare how they fall, not how large they are. Lower bounds are for the worst "
        "θ*. –: the proof states no constants. *: not stated for these numbers.",
        style="dim",
        markup=False,
    )


def _table(bounds: list[Bound]) -> Table:
    rows = [
        {
            "theorem": bound.source + ("" if bound.applies else " *"),
            "side": bound.side,
            "norm": "ℓ2" if bound.norm == "l2" else "Σ_D",
            "privacy": bound.place,
            "rate": bound.value,
            "with constants": bound.proved,
            "formula": bound.formula,
        }
        for bound in bounds
    ]
    return table_of(rows, {name: name for name in rows[0]})
