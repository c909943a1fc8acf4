"""``rank`` as programs call it: how votes are read, and what comes back."""

import csv
import json

import pytest

from murmuration import Ranking, rank
from murmuration.preference.data.errors import InputError
from murmuration.ranking.api import released_votes

pytestmark = pytest.mark.usefixtures("quick_runs")
BUDGET = {"epsilon": 20.0, "delta": 1e-3, "seed": 1}


def votes(better="b", worse="a", users=80):
    return [
        {"user_id": f"u{n}", "chosen": better, "rejected": worse, "topic": "x" if n % 2 else "y"}
        for n in range(users)
    ]


def test_names_that_begin_alike_are_no_prompt(tmp_path):
    """Texts of pairs that share words have them as their prompt; names of items have none."""
    ranking = rank(votes("model b", "model a"), ["model a", "model b"], out=tmp_path, **BUDGET)
    assert ranking.board.items[ranking.board.order[0]] == "model b"
    assert ranking.page == tmp_path / "board.html"
    assert {"board.csv", "board.html", "board.json", "ledger.jsonl"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert Ranking.load(tmp_path).release.to_json() == ranking.release.to_json()
    assert released_votes(ranking.run).to_json() == ranking.release.to_json()
    assert "model b" in str(ranking) and "ε = 20" in str(ranking)
    assert "simulation, seed known" in str(ranking).replace("\n", " ")
    assert json.dumps(ranking.to_json())


def test_categories_are_boards(tmp_path):
    ranking = rank(votes(), ["a", "b"], by="topic", categories=["y", "x"], out=tmp_path, **BUDGET)
    assert [board.name for board in ranking.boards] == ["y", "x"]
    assert ranking.release.voters_B == pytest.approx([40, 40], abs=8)


@pytest.mark.parametrize("by", [None, "language"])
def test_votes_between_models_are_recognised(tmp_path, by):
    path = tmp_path / "arena.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        head = ["judge", "model_a", "model_b", "winner", "language", "response_a", "anony"]
        table.writerow(head)
        table.writerows([f"j{n}", "m1", "m2", "model_b", "de", "…", "True"] for n in range(60))
        table.writerows([f"j{n}", "m2", "m1", "tie (bothbad)", "de", "…", ""] for n in range(20))
        # Given when the names were shown: none of these counts.
        table.writerows([f"k{n}", "m1", "m2", "model_a", "de", "…", "False"] for n in range(90))
    ranking = rank(
        path, ["m1", "m2"], by=by, categories=["de"] if by else None, out=tmp_path / "r", **BUDGET
    )
    release = ranking.release.overall()
    assert release.net_BK[0] == pytest.approx([-60, 60], abs=12)
    assert release.votes_B[0] == pytest.approx(80, abs=25)
    assert release.ties_B[0] == pytest.approx(20, abs=45)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items": None}, "needs items, the public list"),
        ({"data": None}, "needs data, the votes"),
        ({"by": "topic"}, "needs categories, the public list"),
        ({"categories": ["x"]}, "categories needs by"),
        ({"strategy": "uls"}, "leave out strategy"),
        ({"delta": 0}, "delta must be a number between 0 and 1"),
        ({"items": ["A", "a"]}, "looks like 'A'"),
        ({"items": ["b", "c"]}, "'a' is not in items"),
        ({"items": ["A", "b"]}, "'a' is not in items, and 'A' is"),
        ({"items_public": True}, "without items"),
        ({"items": None, "items_public": True}, "reads the models of a file"),
    ],
)
def test_what_is_refused(tmp_path, changes, message):
    given = {"data": votes(), "items": ["a", "b"], **changes}
    with pytest.raises(InputError, match=message):
        rank(given.pop("data"), given.pop("items"), out=tmp_path / "r", **{**BUDGET, **given})
    assert not (tmp_path / "r" / "result.json").exists()


@pytest.fixture
def arena(tmp_path):
    """A file of votes between models, of which one voter alone was shown the third."""
    lines = [f"u{n}@x.org,gpt,claude,model_{'ab'[n % 2]}" for n in range(60)]
    lines.append("last@x.org,claude,llama,tie")
    path = tmp_path / "arena.csv"
    path.write_text("\n".join(["voter_email,model_a,model_b,winner", *lines]) + "\n")
    return path


def test_models_are_items_where_that_is_declared_and_never_else(arena, tmp_path):
    with pytest.raises(InputError, match="items_public"):
        rank(arena, out=tmp_path / "r", **BUDGET)
    assert not (tmp_path / "r").exists()
    ranking = rank(arena, items_public=True, out=tmp_path / "r", **BUDGET)
    assert sorted(ranking.board.items) == ["claude", "gpt", "llama"]
    other = tmp_path / "pairs.jsonl"
    other.write_text('{"user_id": "u", "chosen": "a", "rejected": "b"}\n')
    with pytest.raises(InputError, match="model_a and model_b"):
        rank(other, items_public=True, out=tmp_path / "s", **BUDGET)


def test_a_run_of_another_kind_has_no_board(tmp_path):
    from murmuration.api.run import Run

    with pytest.raises(InputError, match="no board"):
        released_votes(Run(tmp_path, {"strategy": "uls", "outcome": {}}))


def conversation(folder):
    """Write a Polis conversation: 40 people like the first statement, and half the second."""
    folder.mkdir()
    texts = ["More trams", "More parks", "More parking"]
    with (folder / "comments.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(
            ["timestamp", "comment-id", "agrees", "disagrees", "moderated", "comment-body"]
        )
        table.writerows(
            [1, place, 40 - 20 * place, 20 * place, place % 2, text]
            for place, text in enumerate(texts)
        )
        table.writerow([1, 3, 40, 0, -1, "More me, of 5 Sample Street"])
    with (folder / "votes.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["timestamp", "comment-id", "voter-id", "vote"])
        for voter in range(40):
            table.writerows([2, place, voter, 1 - 2 * (place > voter % 2)] for place in range(3))
            table.writerow([2, 3, voter, 1])
    return texts


def test_a_polis_conversation_is_ranked_as_it_is(tmp_path):
    texts = conversation(tmp_path / "polis")
    # A row that names a voter has no public statement: it became an item.
    forged = {"voter-id": "x", "comment-id": 9, "vote": 1, "comment-body": "More me"}
    (tmp_path / "polis" / "more.jsonl").write_text(json.dumps(forged) + "\n")
    more = {"on_bad_rows": "skip", **BUDGET}
    ranking = rank(tmp_path / "polis", format="polis", out=tmp_path / "r", **more)
    board = ranking.board
    assert board.items == tuple(texts)
    assert "More me" not in (tmp_path / "r" / "board.html").read_text(encoding="utf-8")
    assert [board.items[place] for place in board.order] == texts
    assert ranking.release.pairing == "voters"
