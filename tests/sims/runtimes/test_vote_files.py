"""A board that goes on: the same promise however often it is released, resumed, killed or tampered
with."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from murmuration import rank
from murmuration.preference.data.errors import InputError
from murmuration.privacy.accounting.events import ContinuedSum, PoissonGaussian
from murmuration.privacy.accounting.ledger import Ledger, read_charges
from murmuration.sims.runtimes import vote_files

pytestmark = pytest.mark.usefixtures("quick_runs")
ITEMS = ["a", "b", "c"]
BUDGET = {"epsilon": 20.0, "delta": 1e-3, "releases": 3}


def week(number, users=40, better="b", worse="a"):
    """Votes of one week, by some of last week's people and others."""
    first = 20 * (number - 1)
    return [
        {"user_id": f"u{n}", "chosen": better, "rejected": worse}
        for n in range(first, first + users)
    ]


@pytest.fixture
def board(tmp_path):
    """A board of three releases, of which one was made."""
    folder = tmp_path / "board"
    rank(week(1), ITEMS, out=folder, **BUDGET)
    yield folder
    shutil.rmtree(folder)  # runs look at those beside them, and a damaged one stops them


def charges(folder):
    return [(charge.round, charge.attempt) for charge in read_charges(folder / "ledger.jsonl")]


def result(folder):
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def test_all_releases_cost_what_one_does(board, tmp_path):
    one = rank(week(1), ITEMS, out=tmp_path / "one", **{**BUDGET, "releases": 1})
    second = rank(week(2), continued=board)
    third = rank(week(3), continued=board)
    sigma = one.run.result["noise_multiplier"]
    assert [result(board)[name] for name in ("noise_multiplier", "rounds", "rounds_planned")] == [
        sigma,
        3,
        3,
    ]
    spent = [charge.event for charge in read_charges(board / "ledger.jsonl")]
    assert spent == [PoissonGaussian(1.0, sigma), ContinuedSum(sigma, 3), ContinuedSum(sigma, 3)]
    assert third.run.result["epsilon"] == pytest.approx(one.run.result["epsilon"], rel=1e-6)
    assert third.run.result["epsilon"] <= 20.0 and third.run.promise.private
    assert "for all 3 boards together" in third.run.result["guarantee"]
    # Whoever votes counts once as a voter, and all votes are there.
    assert second.release.votes_B[0] == pytest.approx(80, abs=5 * second.release.noise.votes)
    assert third.release.voters_B[0] == pytest.approx(80, abs=5 * third.release.noise.voters)
    assert third.release.net_BK[0, 1] == pytest.approx(120, abs=5 * third.release.noise.net)
    assert len(third.run.result["history"]) == 3
    assert third.release.clip_norm == one.release.clip_norm
    with pytest.raises(InputError, match="all 3 releases of this board have been made"):
        rank(week(4), continued=board)
    assert charges(board) == [(1, 0), (2, 0), (3, 0)]
    assert result(board) == third.run.result


def test_a_seeded_board_repeats(tmp_path):
    boards = []
    for folder in (tmp_path / "x" / "board", tmp_path / "y" / "board"):
        rank(week(1), ITEMS, out=folder, seed=5, **BUDGET)
        boards.append(rank(week(2), continued=folder).release.to_json())
    assert boards[0] == boards[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"items": ["a", "b", "d"]}, "items was"),
        ({"items": ["b", "a", "c"]}, "items was"),
        ({"epsilon": 21.0}, "epsilon was 20.0 and is now 21.0"),
        ({"max_votes": 11}, "max_votes was 0 and is now 11"),
        ({"releases": 4}, "releases was 3 and is now 4"),
        ({"adjacency": "replace"}, "adjacency was"),
        ({"by": "topic"}, "by is that of the board"),
        ({"out": "elsewhere"}, "leave out out"),
        ({"data": None}, "continued needs data"),
        ({"data": "votes.html"}, "takes a file of votes"),
        ({"data": [{"user_id": "u", "chosen": "a", "rejected": "zz"}]}, "'zz' is not in items"),
    ],
)
def test_what_a_board_cannot_go_on_with(board, changes, message):
    """Nothing is charged and nothing is kept, so that the board can go on with what is right."""
    given = {"data": week(2), **changes}
    before = charges(board), result(board)
    with pytest.raises(InputError, match=message):
        rank(given.pop("data"), given.pop("items", None), continued=board, **given)
    assert (charges(board), result(board)) == before
    assert [path.name for path in (board / "private" / "votes").iterdir()] == ["0001.jsonl"]


def test_pairs_of_single_ratings_are_in_no_week(tmp_path):
    """One that is given later would make a pair with one whose week was released."""
    ratings = [
        {"user_id": f"u{n}", "completion": item, "label": liked}
        for n in range(40)
        for item, liked in (("a", True), ("b", False))
    ]
    with pytest.raises(InputError, match="which pairs ratings make tells what they were"):
        rank(ratings, ITEMS, out=tmp_path / "board", **BUDGET)
    assert not (tmp_path / "board").exists()


def test_rows_of_a_week_cannot_become_unreadable(tmp_path):
    """One voter's word for the first of two would leave out all votes of the week before, and
    with them what their voters have used up."""
    with pytest.raises(InputError, match="votes of a release that was made must stay"):
        rank(week(1), ITEMS, out=tmp_path / "board", on_bad_rows="skip", **BUDGET)

    def vote(user, winner):
        return {"user_id": user, "response_a": "a", "response_b": "b", "winner": winner}

    rank([vote(f"u{n}", "left") for n in range(40)], ITEMS, out=tmp_path / "other", **BUDGET)
    later = [vote(f"v{n}", "response_a") for n in range(1200)] + [vote("x", "first")]
    rank(later, continued=tmp_path / "other")
    assert len(charges(tmp_path / "other")) == 2


def test_a_week_without_votes_is_a_release_too(board):
    rank([], continued=board)
    third = rank(week(3), continued=board).release
    assert third.net_BK[0, 1] == pytest.approx(80, abs=5 * third.noise.net)


def test_what_is_no_board_that_goes_on(tmp_path):
    rank(week(1), ITEMS, out=tmp_path / "r", **{**BUDGET, "releases": 1})
    for folder in (tmp_path / "r", tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"no board which was begun with|cannot be used"):
            rank(week(2), continued=folder)


@pytest.mark.parametrize("tampered", ["edited", "gone", "index"])
def test_another_past_ends_the_board(board, tampered):
    votes = board / "private" / "votes" / "0001.jsonl"
    if tampered == "edited":
        votes.write_bytes(votes.read_bytes().replace(b'"b"', b'"c"', 1))
    elif tampered == "gone":
        votes.unlink()
    else:
        (board / "private" / "votes.json").unlink()
    with pytest.raises(InputError, match=r"not what was handed over|bring it back"):
        rank(week(2), continued=board)
    assert charges(board) == [(1, 0)]


@pytest.mark.parametrize("lost", ["gone", "other"])
def test_noise_that_was_lost_ends_the_board(board, lost):
    keys = board / "private" / "noise.json"
    if lost == "gone":
        keys.unlink()
    else:
        keys.write_text(json.dumps({"keys": ["00" * 32]}))
    with pytest.raises(InputError, match="bring back an undamaged copy"):
        rank(week(2), continued=board)
    assert charges(board) == [(1, 0)]


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("moment", ["before", "after", "checkpoint", "result"])
def test_a_release_that_was_killed_is_the_same_when_it_is_resumed(board, moment, monkeypatch):
    """At every step: nothing that was released is missing on the ledger, and the release that is
    there is made again bit for bit, from its own votes only, at no further cost."""
    from murmuration.server.run_directory import RunDirectory

    real = Ledger.charge

    def dies(*_, **__):
        raise Killed

    def charge(ledger, *arguments, **options):
        if moment == "before":
            raise Killed
        real(ledger, *arguments, **options)
        raise Killed

    with monkeypatch.context() as patched:
        if moment in ("before", "after"):
            patched.setattr(Ledger, "charge", charge)
        elif moment == "checkpoint":
            patched.setattr(RunDirectory, "save_checkpoint", dies)
        else:
            patched.setattr("murmuration.server.run.write_report", dies)
        with pytest.raises(Killed):
            rank(week(2), continued=board)
    if moment == "before":  # nothing is known of these votes: others can come in their place
        assert charges(board) == [(1, 0)]
        rank(week(2, users=30), continued=board)
    else:
        assert charges(board) == [(1, 0), (2, 0)]
        with pytest.raises(InputError, match=r"release 2 of .* was begun, and not finished"):
            rank(week(2, users=30), continued=board)
        copy = board.with_name("copy")
        shutil.copytree(board, copy)
        releases = [rank(out=board, resume=True).release.to_json()]
        shutil.rmtree(board)
        copy.rename(board)
        releases.append(rank(out=board, resume=True).release.to_json())
        assert releases[0] == releases[1]
    assert charges(board) == [(1, 0), (2, 0)]
    assert result(board)["epsilon"] <= 20.0
    assert rank(week(3), continued=board).run.result["rounds"] == 3


def test_a_release_is_not_made_again_of_other_votes(board, monkeypatch):
    """Even if votes and their digests are exchanged after it was charged."""
    from murmuration.sims.runtimes import vote_files

    monkeypatch.setattr("murmuration.server.run.write_report", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        rank(week(2), continued=board)
    monkeypatch.undo()
    (board / "checkpoint" / "state.safetensors").unlink()
    votes = vote_files._Votes(board, vote_files._index(board))
    votes.drop_after(1)
    votes.add(week(2, users=39))
    with pytest.raises(InputError, match="release 2 was made of other votes before"):
        rank(out=board, resume=True)
    assert charges(board) == [(1, 0), (2, 0)]


def test_a_lost_ledger_ends_the_board(board):
    ledger = board / "ledger.jsonl"
    ledger.write_bytes(b"".join(ledger.read_bytes().splitlines(keepends=True)[:1]))
    with pytest.raises(InputError, match="was cut or rolled back: 1 lines are left of 2"):
        rank(week(2), continued=board)
    (board / "result.json").unlink()
    with pytest.raises(InputError, match="was cut or rolled back: 1 lines are left of 2"):
        rank(out=board, resume=True)


RATINGS = [
    {"user_id": "u1", "prompt": "Good?", "completion": item, "label": item == "b"}
    for item in ITEMS[:2]
]


def test_ratings_of_single_items_make_no_board_that_goes_on(tmp_path):
    """A rating that comes later would make pairs with earlier ones."""
    with pytest.raises(InputError, match="which pairs ratings make tells what they were"):
        rank(RATINGS, ITEMS, out=tmp_path / "board", **BUDGET)
    assert not (tmp_path / "board").exists()


def test_votes_that_are_read_in_another_way_than_they_were_end_the_board(tmp_path):
    """What each week was read as is kept, and compared before anything is charged."""
    folder = tmp_path / "board"
    rank(week(1), ITEMS, out=folder, **BUDGET)
    readings = vote_files._readings(folder)
    with readings.locked():
        (digest,) = readings.read()["sha256"]
        readings.write({"sha256": [digest[::-1]]})
    with pytest.raises(InputError, match="votes of release 1 are read in another way"):
        rank(week(2), continued=folder)
    assert charges(folder) == [(1, 0)]
    with readings.locked():
        readings.write({"sha256": [digest]})
    rank(week(2), continued=folder)
    assert charges(folder) == [(1, 0), (2, 0)]


def test_who_has_used_up_their_votes_adds_nothing(tmp_path):
    """All of a voter is bounded once: a second week of ten votes is worth nothing."""
    crowd = week(1, users=60)
    hostile = [{"user_id": "hostile", "chosen": "c", "rejected": "a"}] * 1000
    folders = [tmp_path / "x" / "board", tmp_path / "y" / "board"]
    for folder in folders:
        rank(crowd + hostile, ITEMS, out=folder, seed=1, **BUDGET)
    with_more = rank(week(2) + hostile, continued=folders[0]).release
    without = rank(week(2), continued=folders[1]).release
    np.testing.assert_array_equal(with_more.net_BK, without.net_BK)


FORKED = multiprocessing.get_context("fork")


def ends_before(step: int, folder: Path, **how):
    """The exit status of a process that releases a board, and is killed before the so-manyth time
    that it opens something in the folder to write, or renames something into it."""

    def release():
        left = [step]

        def hook(name, given):
            writes = (name == "open" and given[2] & (os.O_WRONLY | os.O_RDWR)) or name in (
                "os.rename",
                "os.remove",
            )
            if writes and str(folder) in str(given[0]):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        rank(**how)
        os._exit(0)

    process = FORKED.Process(target=release)
    process.start()
    process.join()
    return process.exitcode


def shown(folder):
    """The last release that anything in the folder for release tells of."""
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    rounds = [json.loads(line)["round"] for line in lines if line.endswith("}")]
    return max([*rounds, result(folder)["rounds"]], default=0)


@pytest.mark.slow
def test_wherever_it_is_killed_it_costs_what_was_released_and_goes_on(board):
    """By a signal that nothing can catch, before each of its writes; then the same command again,
    or what its message says."""
    steps, resumed, before = 0, 0, board.with_name("elsewhere") / "before"
    shutil.copytree(board, before)
    while True:
        steps += 1
        shutil.rmtree(board)
        shutil.copytree(before, board)
        status = ends_before(steps, board, data=week(2), continued=board)
        assert status in (0, -signal.SIGKILL)
        charged = charges(board)
        assert shown(board) <= max(round_ for round_, _ in charged)
        if (2, 0) in charged:
            assert (board / "private" / "votes" / "0002.jsonl").exists()
        if status == 0:
            break
        try:
            released = rank(week(2, users=30), continued=board)
        except InputError as error:
            assert re.search(r"release 2 of .* was begun, and not finished", str(error))
            released, resumed = rank(out=board, resume=True), resumed + 1
        # Whoever was killed when all was done has the third release.
        assert charges(board)[:2] == [(1, 0), (2, 0)] and len(charges(board)) <= 3
        assert released.run.result["epsilon"] <= 20.0
        assert rank(out=board, resume=True).release.to_json() == released.release.to_json()
    assert steps > 15 and resumed > 3


def in_process(**how):
    """A process that releases a board; its exit status is 1 for an error of input."""

    def release():
        try:
            rank(**how)
        except InputError as error:
            print(error)
            os._exit(1)
        os._exit(0)

    process = FORKED.Process(target=release)
    process.start()
    return process


def test_two_at_once_take_turns(board):
    """Votes of two files that come at the same time are two releases, each with its own."""
    processes = [in_process(data=week(2), continued=board) for _ in range(2)]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert charges(board) == [(1, 0), (2, 0), (3, 0)]
    assert result(board)["rounds"] == 3
    third = rank(out=board, resume=True).release
    assert third.net_BK[0, 1] == pytest.approx(40 + 2 * 40, abs=5 * third.noise.net)


def test_what_is_resumed_keeps_its_votes_from_others(board, monkeypatch):
    """Votes of a release that was killed before it was charged can be replaced, but not while
    somebody makes that release of them: the past of those who come later would be another."""
    real = vote_files._Votes.drop_after
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "charge", lambda *_, **__: 1 / 0)
        patched.setattr(vote_files._Votes, "drop_after", lambda self, releases: None)
        with pytest.raises(ZeroDivisionError):  # killed: nothing is cleaned up
            rank(week(2), continued=board)
    assert vote_files._Votes.drop_after is real
    mine = (board / "private" / "votes" / "0002.jsonl").read_bytes()
    slow, charge = FORKED.Event(), Ledger.charge

    def waits(ledger, *arguments, **options):
        slow.set()
        time.sleep(2)
        return charge(ledger, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "charge", waits)
        first = in_process(out=board, resume=True)
    slow.wait()
    second = in_process(data=week(2, better="a", worse="b"), continued=board)
    first.join()
    second.join()
    assert [first.exitcode, second.exitcode] == [0, 0]
    assert charges(board) == [(1, 0), (2, 0), (3, 0)]
    assert (board / "private" / "votes" / "0002.jsonl").read_bytes() == mine
