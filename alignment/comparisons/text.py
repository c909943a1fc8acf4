"""A comparison of models' answers as a terminal shows it."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.text import Text

from murmuration.alignment.comparisons.comparison import says_nothing
from murmuration.alignment.comparisons.page import interval
from murmuration.terminal.tables import table_of


def comparison_text(result: Mapping[str, Any]) -> Group:
    """A table of models, win rates by judge, and all caveats.

    Args:
        result: that of a ``Comparison``.
    """
    headings = {"model": "model", "wins": "wins", "ties": "ties"}
    headings |= {"length_controlled": "length-controlled wins", "words": "words"}
    if "reward" in result["against"]:
        headings |= {
            "reward": "true reward, of valid generations",
            "unreadable": "invalid generations",
        }
    if any(model["kl"] for model in result["models"]):
        headings["kl"] = "log-ratio, nats"
    rows = [_row(model, result) for model in (*result["models"], result["against"])]
    count, source = result["prompts"]["count"], result["prompts"]["source"]
    lines = [
        f"{model['model']} wins {_wins(model, result)} against {result['against']['model']}, of "
        f"{count:,} prompts of {source}"
        for model in result["models"]
    ]
    judge = result["judge"]
    lines += [f"judge: {judge['how']}", *(f"- {text}" for text in result["caveats"])]
    return Group(table_of(rows, headings), *map(Text, lines))


def _wins(model: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    if says_nothing(model, result):
        return "– (nothing can be read)"
    return _share(model["win_rate"])


def _share(figure: Sequence[float | None]) -> str:
    return interval(figure, "{:.1%}")


def _row(model: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    row = {"model": model["model"], "words": model["words"]}
    row |= {"wins": "", "ties": "", "length_controlled": "", "kl": ""}
    if "win_rate" in model:  # not the one that they are compared with
        pairs = model["wins"] + model["ties"] + model["losses"]
        row["wins"] = _wins(model, result)
        row["ties"] = format(model["ties"] / pairs, ".1%")
        nothing = says_nothing(model, result)
        row["length_controlled"] = "–" if nothing else _share(model["length_controlled"])
        row["kl"] = interval(model["kl"], "{:.2f}") if model["kl"] else "–"
    if "reward" in result["against"]:
        row["reward"] = interval(model["reward"], "{:+.3f}")
        row["unreadable"] = _share(model["unreadable"])
    return row
