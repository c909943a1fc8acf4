"""The page of a board, its CSV and its JSON: what they say, and that names can do nothing."""

import csv
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from cards import Parsed, result_of_a_run
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.figures import round_digits
from murmuration.ranking.arena import Arena
from murmuration.ranking.board import fit_board
from murmuration.ranking.layout import VoteLayout
from murmuration.ranking.page import in_numbers, page, table, write_board
from murmuration.research.reproductions.ranking.released import item_votes, release

HOSTILE = "<script>alert(1)</script>"
RESULT = result_of_a_run(epsilon=0.9999, warnings=[])


def released(boards: int = 1, epsilon: float | None = 1.0, items: int = 5, **arena):
    one = Arena(voters=600, items=items, **arena)
    layout = VoteLayout(items=items, cap=10, boards=boards)
    votes = one.votes()
    board_V = np.arange(len(votes.voter_V)) % boards
    return release(
        item_votes(votes, items, board_V, boards),
        one.names,
        layout,
        epsilon,
        np.random.default_rng(0),
    )


ONE = released()


def test_three_files_agree(tmp_path) -> None:
    one = released()
    path = write_board(tmp_path / "r", one, RESULT)
    assert path == tmp_path / "r" / "board.html"
    numbers = json.loads((tmp_path / "r" / "board.json").read_text())
    rows = list(csv.DictReader((tmp_path / "r" / "board.csv").open()))
    board = fit_board(one.board(0))
    (first,) = numbers["boards"]
    order = [board.items[k] for k in board.order]
    assert [row["item"] for row in rows] == [row["item"] for row in first["items"]] == order
    assert [float(row["elo"]) for row in rows] == [row["elo"] for row in first["items"]]
    assert rows[0]["rank_best"] == "1" and float(rows[0]["elo_low"]) < float(rows[0]["elo"])
    win_KK, low_KK, _ = board.wins()
    i, j = board.order[0], board.order[-1]
    assert first["wins"]["probability"][0][-1] == pytest.approx(win_KK[i, j], abs=1e-4)
    assert first["wins"]["low"][0][-1] == pytest.approx(low_KK[i, j], abs=1e-4)
    assert numbers["epsilon"] == 1.0 and numbers["promise"].startswith("User-level DP: ε = 1.00")
    text = Parsed(path.read_text(encoding="utf-8")).text
    for row in first["items"]:
        assert row["item"] in text and f"{row['elo']:,.0f}" in text
    assert "User-level DP: ε = 1.00" in text
    assert "at most 10" in text


def test_the_page_is_one_file_without_scripts() -> None:
    one = released()
    elements = Parsed(page([fit_board(one.board(0))], one, RESULT))
    assert not {"script", "link", "img", "iframe", "object", "form"} & set(elements.tags)
    assert not [n for n, _ in elements.attributes if n.startswith("on") or n in ("src", "srcset")]
    assert all(value.startswith("#") for n, value in elements.attributes if n == "href" and value)
    assert elements.tags.count("svg") == 5


@pytest.mark.parametrize("place", ["items", "boards"])
def test_hostile_names_are_texts(place: str) -> None:
    one = released(boards=2)
    names = (HOSTILE, *getattr(one, place)[1:])
    one = replace(one, **{place: names})
    text = page([fit_board(one.board(b)) for b in range(2)], one, RESULT)
    elements = Parsed(text)
    assert "script" not in elements.tags and HOSTILE in elements.text


@given(name=st.text(min_size=1, max_size=400))
def test_any_name_leaves_the_page_and_the_table_whole(name: str) -> None:
    one = replace(ONE, items=(name, *(f"other {n}" for n in range(4))))
    board = fit_board(one.board(0))
    plain = replace(ONE, items=tuple(f"other {n}" for n in range(5)))
    tags = Parsed(page([board], one, RESULT)).tags
    assert tags == Parsed(page([fit_board(plain.board(0))], plain, RESULT)).tags
    rows = list(csv.reader(io.StringIO(table([board]), newline="")))
    assert len(rows) == 6 and {len(row) for row in rows} == {8}
    assert {name, f"'{name}"} & {row[1] for row in rows}


def test_numbers_of_people_have_their_error() -> None:
    one = released(epsilon=1.0)
    board = replace(fit_board(one.board(0)), votes=840.0, voters=-3.0)
    error = {name: round_digits(1.96 * getattr(one.noise, name)) for name in ("votes", "voters")}
    text = " ".join(page([board], one, RESULT).split())
    assert f"About 840 ± {error['votes']} votes of 0 ± {error['voters']} voters (numbers" in text
    exact = released(epsilon=None)
    text = " ".join(page([fit_board(exact.board(0))], exact, RESULT).split())
    assert re.search(r"About [\d,]+ votes of [\d,]+ voters \(numbers", text)


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "\r1"])
def test_no_cell_begins_a_formula(name: str) -> None:
    one = replace(ONE, items=(name, "b", "c", "d", "e"), boards=(name,))
    rows = csv.reader(io.StringIO(table([fit_board(one.board(0))]), newline=""))
    cells = [cell for row in rows for cell in row[:2]]
    assert sum(cell.startswith("'") for cell in cells) == 6
    assert not [cell for cell in cells if cell.strip()[:1] in ("=", "+", "-", "@")]


def test_categories_have_a_board_each(tmp_path) -> None:
    one = released(boards=3)
    text = Parsed(write_board(tmp_path, one, RESULT).read_text(encoding="utf-8")).text
    assert "Boards of 3 categories" in text
    for name in one.boards:
        assert text.count(name) >= 2
    assert len(list(csv.DictReader((tmp_path / "board.csv").open()))) == 15


def test_a_headline_claims_no_more_than_ranks_do() -> None:
    alike = released(points=0.0, taste=0.0)
    board = fit_board(alike.board(0))
    assert (board.ranks[0] == 1).all()
    assert "Nobody is ahead: any of 5 may be first" in page([board], alike, RESULT)
    two = replace(board, scores_K=np.array([5.0, 4.9, -3.0, -3.0, -3.9]), covariance_KK=np.eye(5))
    assert f"{two.items[0]} leads; {two.items[1]} may be first, too" in page([two], alike, RESULT)
    apart = released(points=400.0, epsilon=None, taste=0.0)
    board = fit_board(apart.board(0))
    first = board.items[board.order[0]]
    assert f"<h1>{first} is first</h1>" in page([board], apart, RESULT)


def test_without_privacy_the_page_says_so() -> None:
    one = released(epsilon=None)
    text = Parsed(page([fit_board(one.board(0))], one, result_of_a_run(private=False))).text
    assert "No privacy" in text and "none: these are exact figures about the voters" in text


def test_many_items_have_the_strongest_on_the_page_and_no_matrix_in_numbers() -> None:
    one = released(items=101)
    board = fit_board(one.board(0))
    assert in_numbers(board)["wins"] is None
    elements = Parsed(page([board], one, RESULT))
    assert elements.tags.count("svg") == 101 and "The strongest 12 of 101" in elements.text
