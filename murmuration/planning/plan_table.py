"""The table of a plan at the terminal, with recommendations for the number of users."""

from typing import Any

from rich.table import Table

from murmuration.planning import advice
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies import registry
from murmuration.terminal.tables import table_of
from murmuration.terminal.terminal import Terminal

#: Upper bounds, as a table names them.
_ATTACKS = {
    "tpr_at_1_percent_fpr": "Membership inference: TPR at 1 % FPR (upper bound)",
    "tpr_at_0_1_percent_fpr": "Membership inference: TPR at 0.1 % FPR (upper bound)",
    "gdp_mu": "μ-GDP (upper bound)",
}

#: What is said of a plan by name, and stands in no line of its own.
_NAMES = frozenset({"strategy", "adjacency", "user_isolation", "chosen", "solved_for"})


def print_plan(numbers: dict[str, Any]) -> None:
    """Print the numbers as a table, which says of each that was not given where it is from."""
    adjacency = Adjacency(numbers["adjacency"])
    table = Table(title=f"{numbers['strategy']}, {adjacency.value}", title_justify="left")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    for name, value in numbers.items():
        if not isinstance(value, str):
            solved, chosen = name == numbers["solved_for"], name == numbers["chosen"]
            origin = "solved for" if solved else "chosen: see --cohort" if chosen else ""
            style = "bold" if solved else ""
            shown = _ATTACKS.get(name, name.replace("_", " "))
            table.add_row(shown, f"{value:.6g}", origin, style=style)
    console = Terminal()
    console.print(table)
    console.print(adjacency.sentence(), style="dim")
    for name, value in numbers.items():
        if isinstance(value, str) and name not in _NAMES:
            console.print(value, markup=False)
    console.print(f"Isolation of users from each other: {numbers['user_isolation']}", style="dim")
    if not registry.named(numbers["strategy"]).has_model:
        return
    features = advice.features_for(int(numbers["users"]), numbers["epsilon"])
    console.print(f"--features {features.names[0]}: {features.why}", style="dim")
    console.print(advice.TAKES[features.names[0]], style="dim")
    if start := advice.start_for(int(numbers["users"]), numbers["epsilon"]):
        console.print(start, style="dim")
    if numbers["delta"] >= 1 / numbers["users"]:
        console.print("delta is not below 1 / users: that is no privacy", style="yellow")
    rows = advice.accuracies()
    headings = {name: f"ε = {name}" for name in rows[0]} | {"users": "users"}
    console.print(table_of(rows, headings, "Accuracy measured on other crowds"))
    console.print(advice.caveat(), style="dim")
