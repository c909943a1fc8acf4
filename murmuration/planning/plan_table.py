"""The table of a plan at the terminal, with what suits so many people."""

from typing import Any

from rich.table import Table

from murmuration.planning import advice
from murmuration.privacy.adjacency import Adjacency
from murmuration.terminal.tables import table_of
from murmuration.terminal.terminal import Terminal

#: Upper bounds, as a table names them.
_ATTACKS = {
    "tpr_at_1_percent_fpr": "Membership inference: TPR at 1 % FPR (upper bound)",
    "tpr_at_0_1_percent_fpr": "Membership inference: TPR at 0.1 % FPR (upper bound)",
    "gdp_mu": "μ-GDP (upper bound)",
}

_ABOUT_POWER = (
    "Voters for so many points: with that many, two items of nearly equal strength that differ by "
    "so much are told apart in 80 % of polls, at 95 %, if pairs are drawn alike and voters' tastes "
    "differ as usual (design effect 1.3)"
)


def print_plan(numbers: dict[str, Any], missing: str) -> None:
    """Print the numbers as a table, which says of each that was not given where it is from."""
    adjacency = Adjacency(numbers["adjacency"])
    table = Table(title=f"{numbers['strategy']}, {adjacency.value}", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    for name, value in numbers.items():
        if not isinstance(value, str):
            origin = {missing: "solved for", numbers["chosen"]: "chosen: see --cohort"}.get(
                name, ""
            )
            style = "bold" if name == missing else ""
            shown = _ATTACKS.get(name, name.replace("_", " "))
            table.add_row(shown, f"{value:.6g}", origin, style=style)
    console = Terminal()
    console.print(table)
    console.print(adjacency.sentence, style="dim")
    for name in ("survey", "correlation"):
        if name in numbers:
            console.print(numbers[name], markup=False)
    console.print(f"Isolation of users from each other: {numbers['user_isolation']}", style="dim")
    if "items" in numbers:
        console.print(_ABOUT_POWER, style="dim")
        return
    features = advice.features_for(int(numbers["users"]), numbers["epsilon"])
    console.print(f"For this many people: --features {features.name}, {features.why}", style="dim")
    if features.name == "minilm":
        console.print(advice.MINILM_TAKES, style="dim")
    if numbers["delta"] >= 1 / numbers["users"]:
        console.print("delta is not below 1 / users: that is no privacy", style="yellow")
    rows = advice.accuracies()
    headings = {name: f"ε = {name}" for name in rows[0]} | {"users": "users"}
    console.print(table_of(rows, headings, "Accuracy measured on other crowds"))
    console.print(advice.caveat(), style="dim")
