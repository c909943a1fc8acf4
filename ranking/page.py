"""The page of a leaderboard, to be published: ranks, differences, and the privacy cost for a voter.

Decisions:
- Ranks are ranges, and the headline names every item that may be first, so that the page claims
  nothing that noise or luck could have made.
- All of it is post-processing of one release, so page, CSV and JSON may be published.
- Names of items are untrusted texts: Jinja escapes them, each stands in a direction of its own, and
  in the CSV one that a spreadsheet would compute has an apostrophe before it.
- One file, no script, nothing fetched from anywhere, light or dark as the reader has it.

Legend: K items.
"""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.privacy.durable_files import replace_file
from murmuration.privacy.figures import interval, round_digits
from murmuration.ranking.board import CONFIDENCE, Board, fit_board
from murmuration.ranking.release import Noise, RankingRelease
from murmuration.reporting.evidence import attack_rows
from murmuration.reporting.facts import facts
from murmuration.reporting.jinja import html_templates

PAGE, TABLE, NUMBERS = "board.html", "board.csv", "board.json"
#: So many items a matrix of wins has on the page, the strongest; and in the JSON, or it has none.
_MATRIX_ON_PAGE, _MATRIX_IN_JSON = 12, 100
_LONGEST_NAME = 280
#: What a spreadsheet takes for the beginning of a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def write_board(folder: Path, release: RankingRelease, result: Mapping[str, Any]) -> Path:
    """Write ``board.csv``, ``board.json`` and, last, ``board.html``, which is returned.

    Args:
        folder: of the run.
        release: what the run released, of one board or of several.
        result: the figures of its ``result.json``.
    """
    boards = [fit_board(release.board(place)) for place in range(len(release.boards))]
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / TABLE, table(boards).encode())
    numbers = {
        "epsilon": release.epsilon,
        "delta": release.delta,
        "promise": facts(result)["claim"],
        "adjacency": result["adjacency"],
        "confidence": CONFIDENCE,
        "boards": [in_numbers(board) for board in boards],
    }
    text = json.dumps(numbers, indent=2, allow_nan=False, ensure_ascii=False)
    replace_file(folder / NUMBERS, f"{text}\n".encode())
    replace_file(folder / PAGE, page(boards, release, result).encode())
    return folder / PAGE


def table(boards: Sequence[Board]) -> str:
    """Leaderboards as CSV: a line for each item, from the strongest."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(
        ["board", "item", "rank_best", "rank_worst", "elo", "elo_low", "elo_high", "voted_on"]
    )
    for board in boards:
        for row in in_numbers(board)["items"]:
            names = [_no_formula(board.name), _no_formula(row["item"])]
            writer.writerow([*names, *(value for name, value in row.items() if name != "item")])
    return text.getvalue()


def in_numbers(board: Board) -> dict[str, Any]:
    """A leaderboard as JSON; items are sorted from the strongest."""
    order, (best_K, worst_K) = board.order, board.ranks
    elo_K, error_K = board.elo_K, board.error_K
    wins = None
    if len(order) <= _MATRIX_IN_JSON:
        names = ("probability", "low", "high")
        tables = (part[np.ix_(order, order)].round(4).tolist() for part in board.wins())
        wins = dict(zip(names, tables, strict=True))
    return {
        "board": board.name,
        "votes": round(board.votes, 1),
        "voters": round(board.voters, 1),
        "tie": round(board.tie, 6),
        "one_voter_moves_at_most": round(board.sway, 2),
        "items": [
            {
                "item": board.items[k],
                "rank_best": int(best_K[k]),
                "rank_worst": int(worst_K[k]),
                "elo": round(float(elo_K[k]), 2),
                "elo_low": round(float(elo_K[k] - error_K[k]), 2),
                "elo_high": round(float(elo_K[k] + error_K[k]), 2),
                "voted_on": bool(board.voted_K[k]),
            }
            for k in order
        ],
        "impossible": list(board.impossible),
        "wins": wins,
    }


def page(boards: Sequence[Board], release: RankingRelease, result: Mapping[str, Any]) -> str:
    """The page as HTML."""
    run = facts(result)
    return _PAGE.render(
        run,
        shown=[_shown(board, release.noise) for board in boards],
        attacker=attack_rows(run),
        cap=release.cap,
        public_pairing=release.pairing == "public",
        clipped=max(0.0, release.clipped),
        confidence=CONFIDENCE,
    )


def _shown(board: Board, noise: Noise) -> dict[str, Any]:
    """A board as the page has it; places are per mille of the scale's width."""
    order, (best_K, worst_K) = board.order, board.ranks
    elo_K, error_K = board.elo_K, board.error_K
    low, high = float((elo_K - error_K).min()), float((elo_K + error_K).max())
    step = _step(high - low)
    first, last = math.floor(low / step) * step, math.ceil(high / step) * step

    def place(points: float) -> float:
        return round(1000 * (points - first) / (last - first), 1)

    ticks = np.arange(first, last + step / 2, step)
    return {
        "name": _plain(board.name),
        "headline": _headline(board),
        "lines": [
            {
                "ranks": _range(int(best_K[k]), int(worst_K[k])),
                "name": _plain(board.items[k]),
                "points": f"{elo_K[k]:,.0f}",
                "error": round_digits(float(error_K[k])),
                "low": place(float(elo_K[k] - error_K[k])),
                "place": place(float(elo_K[k])),
                "high": place(float(elo_K[k] + error_K[k])),
                "voted": bool(board.voted_K[k]),
            }
            for k in order
        ],
        "ticks": [(place(float(tick)), f"{tick:,.0f}") for tick in ticks],
        "names": [_plain(board.items[k]) for k in order[:_MATRIX_ON_PAGE]],
        "matrix": _matrix(board),
        "votes": _with_error(board.votes, noise.votes),
        "voters": _with_error(board.voters, noise.voters),
        "sway": round_digits(board.sway),
        "tie": board.tie > 0,
    }


def _with_error(number: float, noise: float) -> str:
    """A number of people or votes, with half the width of its 95 % noise interval."""
    error = f" ± {round_digits(interval(noise))}" if noise else ""
    return f"{round_digits(max(number, 0.0))}{error}"


def _headline(board: Board) -> str:
    best_K, _ = board.ranks
    may_be_first = [board.items[k] for k in board.order if best_K[k] == 1]
    if len(may_be_first) == 1:
        return f"{_plain(may_be_first[0])} is first"
    if len(may_be_first) == len(board.items):
        return f"Nobody is ahead: any of {len(board.items)} may be first"
    leader = _plain(board.items[board.order[0]])
    if len(may_be_first) == 2:
        (other,) = {*may_be_first} - {board.items[board.order[0]]}
        return f"{leader} leads; {_plain(other)} may be first, too"
    return f"{leader} leads; any of {len(may_be_first)} may be first"


def _matrix(board: Board) -> list[list[dict[str, Any] | None]]:
    """Chances of winning in percent, with their intervals, and shades from −100 to 100."""
    places = board.order[:_MATRIX_ON_PAGE]
    win_KK, low_KK, high_KK = (100 * part for part in board.wins())
    apart_KK = board.better_KK | board.better_KK.T
    return [
        [
            None
            if i == j
            else {
                "win": round(float(win_KK[i, j])),
                "low": math.floor(low_KK[i, j]),
                "high": math.ceil(high_KK[i, j]),
                "shade": round(2 * (float(win_KK[i, j]) - 50)),
                "apart": bool(apart_KK[i, j]),
            }
            for j in places
        ]
        for i in places
    ]


def _step(width: float) -> float:
    """The spacing of a scale's marks: 1, 2 or 5 times a power of ten, for about five marks."""
    rough = max(width, 1.0) / 5
    power = 10 ** math.floor(math.log10(rough))
    return power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough)


def _range(best: int, worst: int) -> str:
    return str(best) if best == worst else f"{best}–{worst}"


def _plain(name: str) -> str:
    """A name in one line, printable and not too long."""
    text = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}…"


def _no_formula(name: str) -> str:
    return f"'{name}" if name.lstrip(" ").startswith(_FORMULA) else name


_TEMPLATES = Path(__file__).with_name("templates")
_PAGE = html_templates(_TEMPLATES, {"round_digits": round_digits}).get_template("board.html.md")
