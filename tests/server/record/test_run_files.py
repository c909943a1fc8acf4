"""Settings of a deployed run go from the command to the ServerApp, and nowhere else."""

import pytest

from murmuration.preference.data.errors import InputError
from murmuration.server.record.run_files import SETTINGS_FILE, handed_over, settings_of

SETTINGS = {"out": "/srv/run", "epsilon": 3.0, "resume": False}


def test_what_is_handed_over_is_read_and_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    with handed_over(SETTINGS, tmp_path) as run_config:
        assert settings_of(run_config) == SETTINGS
        (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert file.stem == run_config[SETTINGS_FILE]
    assert not file.exists()
    with pytest.raises(InputError, match="murmuration deploy run"):
        settings_of(run_config)


def test_a_run_config_without_a_file_is_the_settings():
    assert settings_of(SETTINGS) == SETTINGS


@pytest.mark.parametrize("name", ["../secret", "", "/etc/passwd", "a" * 31, "A" * 32, 5])
def test_a_name_leads_nowhere_else(tmp_path, monkeypatch, name):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    (tmp_path / "run-settings").mkdir()
    (tmp_path / "secret.json").write_text('{"epsilon": 1.0}')
    with pytest.raises(InputError, match="not in"):
        settings_of({SETTINGS_FILE: name})


def test_without_a_deployment_there_is_no_file(monkeypatch):
    monkeypatch.delenv("FLWR_HOME", raising=False)
    with pytest.raises(InputError, match="not in"):
        settings_of({SETTINGS_FILE: "a" * 32})


def test_what_has_no_key_of_its_own_stands_together():
    given = {"rounds": 5, "clip-norm": 0.1, "settings": "lora-rank = 8, optimizer = 'adam'"}
    settings = settings_of(given)
    assert settings == {"rounds": 5, "clip-norm": 0.1, "lora-rank": 8, "optimizer": "adam"}
    assert settings_of({"rounds": 5, "settings": ""}) == {"rounds": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lora-rank", "write them as in"),
        ("lora-rank = 8\noptimizer = 'adam'", "write them as in"),
        ("} \nx = {", "write them as in"),
        ("clip_norm = 0.2", "clip-norm has a key of its own"),
    ],
)
def test_settings_that_cannot_be_read_together(text, message):
    with pytest.raises(InputError, match=message):
        settings_of({"clip-norm": 0.1, "settings": text})
