"""Settings as programs and commands give them: what names become on this machine."""

from pathlib import Path

import pytest

from murmuration.api.config import config_of
from murmuration.preference.features import language_states
from murmuration.preference.features.hashing import parse_features


@pytest.mark.parametrize("named", ["smollm2", "some.gguf"])
def test_features_of_a_gguf_file_are_its_states_and_not_an_encoders(named, monkeypatch, tmp_path):
    """Its folder would be read as an encoder's: whole, and not centred."""
    monkeypatch.chdir(tmp_path)
    Path("some.gguf").touch()
    monkeypatch.setattr(language_states, "resolve_base", lambda path: str(tmp_path / "converted"))
    config = config_of({}, tmp_path / "run", {"features": named})
    assert config.features == (named if named == "smollm2" else str(Path(named).absolute()))
    assert parse_features(config.features)["kind"] == "language-states"
