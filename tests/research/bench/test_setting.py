"""What benchmarks run: judgements of the stated size, a folder that goes, rounds that are told."""

import pytest

from murmuration.research.bench.setting import Setting, told


@pytest.mark.parametrize(
    ("setting", "name"),
    [(Setting(users=30), "users_30_each_10"), (Setting(each=3), "users_2500_each_3")],
)
def test_a_run_of_that_size_leaves_nothing(setting, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with setting.config(rounds=7) as config:
        assert config.data == f"murmuration.research.bench.synthetic_users:{name}"
        assert (config.cohort, config.rounds, config.group_size) == (250, 7, setting.each)
        assert list(tmp_path.iterdir())
    assert not list(tmp_path.iterdir())


def test_messages_are_told_of_before_they_go_out():
    happened = []

    class Quiet:
        def push_messages(self, messages):
            happened.append(("out", list(messages)))
            return ["id"]

    grid = told(Quiet, lambda outgoing: happened.append(("told", outgoing)))()
    assert grid.push_messages(iter([1, 2])) == ["id"]
    assert happened == [("told", [1, 2]), ("out", [1, 2])]
