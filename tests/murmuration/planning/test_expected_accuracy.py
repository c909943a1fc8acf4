"""Accuracy that was measured elsewhere: its table, and where the figures are from."""

import re
from pathlib import Path

from murmuration.planning import expected_accuracy
from murmuration.research.reproductions import accuracy_by_users

ROOT = Path(__file__).parents[3]


def test_bands_run_from_the_least_to_the_largest_crowd():
    bands = expected_accuracy.bands()
    assert [row["users"] for row in bands] == ["100", "500", "1,000", "2,500–2,700"]
    assert bands[0] == {"users": "100", "1": "55–59 %", "3": "62–64 %", "8": "66–67 %"}
    assert bands[-1]["3"] == "74–76 %"


def test_more_users_and_more_budget_are_never_worse():
    for crowd in expected_accuracy.crowds():
        by_place = {(r["users"], r["epsilon"] or 99.0): r["accuracy_mean"] for r in crowd["rows"]}
        for (users, epsilon), mean in by_place.items():
            larger = [v for (n, e), v in by_place.items() if n >= users and e >= epsilon]
            assert min(larger) == mean


def test_the_rows_of_the_population_are_those_that_the_command_writes():
    rows = expected_accuracy.crowds()[0]["rows"]
    cells = [(u, e) for u in accuracy_by_users.PEOPLE for e in (*accuracy_by_users.EPSILONS, None)]
    assert [(row["users"], row["epsilon"]) for row in rows] == cells


def test_the_other_crowd_is_the_page_on_choosing():
    page = (ROOT / "docs" / "how-to" / "choosing.md").read_text(encoding="utf-8")
    table = page.split("On debates that people judged in training:")[1].split("On four debates")[0]
    for line in re.findall(r"^\| [\d,]+ \|.*$", table, re.MULTILINE):
        users, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for epsilon, cell in zip((1.0, 3.0, 8.0), cells, strict=True):
            (row,) = [
                row for row in expected_accuracy.crowds()[1]["rows"]
                if (row["users"], row["epsilon"]) == (int(users.replace(",", "")), epsilon)
            ]  # fmt: skip
            assert f"{100 * row['accuracy_mean']:.1f}" == cell.split(" →")[0]


def test_plan_shows_them_as_what_they_are(cli):
    given = ("--noise-multiplier", 20, "--users", 400, "--cohort", 40, "--rounds", 30)
    code, stdout, _ = cli("plan", *given, "--delta", 1e-5)
    shown = " ".join(stdout.split())
    assert code == 0
    assert "Accuracy measured on other crowds" in shown and "62–64 %" in shown
    assert "measured on two other crowds" in shown and "Yours will differ" in shown
    assert "59 % and 68 %" in shown


def test_the_page_on_strategies_has_the_figures_of_the_file():
    page = (ROOT / "docs" / "research" / "strategies.md").read_text(encoding="utf-8")
    for row in expected_accuracy.crowds()[0]["rows"]:
        assert f"{row['accuracy_mean']:.3f} ± {row['accuracy_sd']:.3f}" in page
