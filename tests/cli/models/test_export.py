"""``murmuration export``: what it prints and writes."""

import json

import pytest


@pytest.fixture
def folder(cli, crowd, crowd_test, tmp_path, quick_runs):
    """A run's."""
    code, *_ = cli(
        "run", "--data", crowd, "--test", crowd_test, "--epsilon", 2, "--delta", 1e-3,
        "--rounds", 2, "--cohort", 10, "--seed", 3, "--out", tmp_path / "run",
    )  # fmt: skip
    assert code == 0
    return tmp_path / "run"


def test_files_are_listed(cli, folder, tmp_path):
    (folder / "model" / "mine.txt").write_text("mine")
    code, stdout, lines = cli("export", folder, "--out", tmp_path / "out", "--license", "mit")
    assert (code, lines) == (0, [])
    assert "README.md" in stdout and "privacy.json" in stdout
    assert "not shared: mine.txt" in stdout
    assert stdout.strip().endswith(f"written to {tmp_path / 'out'}")
    assert "license: mit\n" in (tmp_path / "out" / "README.md").read_text()


def test_json(cli, folder, tmp_path):
    code, stdout, _ = cli("export", folder / "model", "--out", tmp_path / "out", "--json")
    told = json.loads(stdout)
    assert code == 0 and told["left_out"] == []
    assert told["files"] == {
        file.name: file.stat().st_size for file in (tmp_path / "out").iterdir()
    }


def test_what_cannot_be_exported_is_one_line(cli, folder, tmp_path):
    for options, why in (
        ([folder, "--out", folder], "already exists"),
        ([folder, "--out", tmp_path / "out", "--merge"], "holds no adapter"),
        ([tmp_path, "--out", tmp_path / "out"], "neither a model"),
    ):
        code, stdout, lines = cli("export", *options)
        assert (code, stdout, len(lines)) == (2, "", 1)
        assert why in lines[0]
