"""A source in two files: each user is in one of them, by their id alone."""

import json

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.splitting import split_users


def rows(users, more=""):
    return [
        {"who": f"u{n % users}", "prompt": f"p{n}", "chosen": "a" + more, "rejected": "b", "x": [n]}
        for n in range(4 * users)
    ]


def test_no_user_is_on_both_sides_and_no_row_is_lost(write_rows, tmp_path):
    there = [*rows(100), {"prompt": "nobody's"}]
    path = write_rows(there)
    split = split_users(path, 0.2, tmp_path / "out", columns="user_id=who")
    train, test = (
        [json.loads(line) for line in file.read_text().splitlines()]
        for file in (split.train, split.test)
    )
    users = [{row["who"] for row in side} for side in (train, test)]
    assert not users[0] & users[1]
    assert (split.train_users, split.test_users) == tuple(map(len, users))
    assert 5 <= split.test_users <= 40 and split.train_users + split.test_users == 100
    assert split.left_out == 1
    assert sorted(map(json.dumps, train + test)) == sorted(map(json.dumps, there[:-1]))
    held_out = load_judgements(str(split.test), columns={"user_id": "who"})
    assert {*held_out.user_ids} == users[1]


def test_a_side_follows_from_the_id_alone(write_rows, tmp_path):
    one = split_users(write_rows(rows(50)), 0.5, tmp_path / "1", columns="user_id=who")
    more = write_rows(rows(80, " more")[::-1])
    other = split_users(more, 0.5, tmp_path / "2", columns="user_id=who")

    def users_in(file):
        return {json.loads(line)["who"] for line in file.read_text().splitlines()}

    assert users_in(one.test) <= users_in(other.test) and users_in(one.train) <= users_in(
        other.train
    )


def test_what_cannot_be_split(write_rows, tmp_path):
    path = write_rows(rows(30))
    for share in (0.0, 1.0, 20.0, float("nan")):
        with pytest.raises(InputError, match="--split-users must be a share"):
            split_users(path, share, tmp_path / "out", columns="user_id=who")
    with pytest.raises(InputError, match="120 rows that name nobody"):
        split_users(path, 0.5, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    split_users(path, 0.5, tmp_path / "out", columns="user_id=who")
    with pytest.raises(InputError, match="File exists"):
        split_users(path, 0.5, tmp_path / "out", columns="user_id=who")


def test_what_is_written_is_json_whatever_was_read(write_rows, tmp_path):
    rows_ = [{"who": f"u{n}", "prompt": "p", "chosen": "a", "rejected": "b"} for n in range(40)]
    rows_ = [{**row, "score": float("nan"), "other": [float("-inf")]} for row in rows_]
    split = split_users(write_rows(rows_), 0.5, tmp_path / "o", columns="user_id=who")
    for path in (split.train, split.test):
        for line in path.read_text().splitlines():
            assert json.loads(line, parse_constant=pytest.fail)["other"] == ["-infinite"]
