"""``murmuration init``: files that a run can read."""

import pytest

from murmuration.preference.data.loading import load_judgements


def test_files_are_judgements(cli, tmp_path):
    code, stdout, _ = cli("init", "population", "--out", tmp_path / "p", "--users", 6, "--seed", 4)
    assert code == 0
    names = sorted(path.name for path in (tmp_path / "p").iterdir())
    assert all(name in stdout for name in names)
    train = next(path for path in (tmp_path / "p").iterdir() if path.name.startswith("train"))
    assert len(load_judgements(str(train)).user_ids) == 6
    first = train.read_bytes()
    cli("init", "population", "--out", tmp_path / "q", "--users", 6, "--seed", 4)
    cli("init", "population", "--out", tmp_path / "r", "--users", 6, "--seed", 5)
    assert (tmp_path / "q" / train.name).read_bytes() == first
    assert (tmp_path / "r" / train.name).read_bytes() != first


@pytest.mark.parametrize("place", ["p", "file"])
def test_bad_input_is_one_line(cli, tmp_path, place):
    (tmp_path / "file").write_text("x")
    users = -1 if place == "p" else 2
    code, _, lines = cli("init", "population", "--out", tmp_path / place, "--users", users)
    assert (code, len(lines)) == (2, 1)
    assert not (tmp_path / "p").exists()
