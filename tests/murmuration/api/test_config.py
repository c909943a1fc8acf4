"""Settings as programs and commands give them: what names become on this machine."""

import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

import murmuration as mm
from murmuration.api.config import TrainConfig, config_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.features import language_states
from murmuration.preference.features.hashing import parse_features
from murmuration.privacy.adjacency import Adjacency


@pytest.mark.parametrize("named", ["smollm2", "some.gguf"])
def test_features_of_a_gguf_file_are_its_states_and_not_an_encoders(named, monkeypatch, tmp_path):
    """Its folder would be read as an encoder's: whole, and not centred."""
    monkeypatch.chdir(tmp_path)
    Path("some.gguf").touch()
    monkeypatch.setattr(language_states, "resolve_base", lambda path: str(tmp_path / "converted"))
    config = config_of({}, tmp_path / "run", None, {"features": named})
    assert config.features == (named if named == "smollm2" else str(Path(named).absolute()))
    assert parse_features(config.features)["kind"] == "language-states"


def test_a_config_is_checked_where_it_is_written_and_speaks_python():
    with pytest.raises(InputError, match=r"^clip_norm must be a positive number; got -1"):
        TrainConfig(clip_norm=-1.0)
    with pytest.raises(InputError, match="did you mean 'clip_norm'"):
        TrainConfig(clip_nrm=0.1)
    with pytest.raises(InputError, match=r"^sampling_probability is for"):
        TrainConfig(strategy="uls", sampling_probability=0.5)
    with pytest.raises(FrozenInstanceError):
        TrainConfig().epsilon = 9.0


SETTINGS = [
    {},
    {"epsilon": 1, "delta": "n^-1.1", "users": 400, "adjacency": Adjacency.REPLACE},
    {"strategy": "els", "sampling_probability": 0.25, "group_size": 4},
    {"strategy": "local-label", "estimator": "mle"},
    {"kind": "thumbs", "columns": {"user_id": "who", "label": 'it\'s "so"'}},
    {"note": "ε ≤ '3' \\"},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_config_survives_a_file(settings, tmp_path):
    config = TrainConfig(**settings)
    (tmp_path / "run.toml").write_text(config.to_toml(), encoding="utf-8")
    assert TrainConfig.from_toml(tmp_path / "run.toml") == config
    assert config.changed(max_judgements=7).changed(max_judgements=10_000) == config


def test_a_file_asks_no_hub_by_itself(tmp_path):
    (tmp_path / "run.toml").write_text('base = "somebody/model"')
    with pytest.raises(InputError, match="base = 'somebody/model' is of a hub"):
        TrainConfig.from_toml(tmp_path / "run.toml")


def test_a_plan_of_a_config_is_that_of_its_settings():
    config = TrainConfig(epsilon=2, users=480, cohort=60, rounds=30, heldout=0.0)
    numbers = {"epsilon": 2.0, "users": 480, "cohort": 60, "rounds": 30, "delta": 1e-5}
    planned = mm.plan(config)
    assert planned == mm.plan(**numbers)
    noise = planned["noise_multiplier"]
    assert mm.plan(config, noise_multiplier=noise)["epsilon"] == pytest.approx(2.0, rel=1e-3)
    assert mm.plan(config, epsilon=1.0)["noise_multiplier"] > noise
    held = mm.plan(config.changed(heldout=0.25))
    assert held["heldout_epsilon"] == 1.0
    assert held["heldout_users"] == 160
    alone = config.changed(heldout=0.0, group_size=3, strategy="dp-fedavg", rounds=30)
    assert mm.plan(alone)["noise_multiplier"] == noise
    other = mm.plan(TrainConfig(users=480), strategy="label-moment", adjacency="replace-labels")
    assert other["rounds"] == 1
    with pytest.raises(InputError, match="leave out"):  # the number of users is not stated
        mm.plan(TrainConfig())


def test_a_run_of_a_config_is_that_of_its_settings(quick_runs, crowd, crowd_test, tmp_path):
    settings = {"test": crowd_test, "rounds": 2, "cohort": 60, "users": 480, "seed": 3}
    config = TrainConfig(**settings)
    runs = [
        mm.train(crowd, config=config, out=tmp_path / "of-a-config"),
        mm.train(crowd, config=config.changed(seed=4), seed=3, out=tmp_path / "seed-beside-it"),
        mm.train(crowd, **settings, out=tmp_path / "of-settings"),
    ]
    written = [json.loads((run.path / "config.json").read_text()) for run in runs]
    for each in written:
        del each["check"]
    assert written[0] == written[1] == written[2]
    assert len({(run.path / "model" / "model.safetensors").read_bytes() for run in runs}) == 1


def test_what_follows_from_a_strategy_does_not_stay_with_another():
    local = TrainConfig(strategy="local-label", users=400)
    assert (local.adjacency, local.rounds) == ("replace-labels", 1)
    other = local.changed(strategy="uls")
    assert (other.adjacency, other.rounds) == ("add-remove", 200)


def test_a_run_of_another_version_is_not_resumed(tmp_path):
    (tmp_path / "private").mkdir()
    (tmp_path / "config.json").write_text('{"exact_heldout": false}')
    (tmp_path / "private/seed.json").write_text('{"seed": -1}')
    with pytest.raises(InputError, match=r"config\.json: unknown setting 'exact_heldout'"):
        mm.train(out=tmp_path, resume=True)


def test_a_run_that_is_resumed_takes_no_config(tmp_path):
    with pytest.raises(InputError, match="leave out config"):
        mm.train(config=TrainConfig(epsilon=3), out=tmp_path, resume=True)


def test_a_seed_is_written_to_no_file():
    """It is secret: whoever has it can subtract the noise."""
    config = TrainConfig(rounds=7, seed=834_561)
    assert config.given["seed"] == 834_561
    assert config.to_toml() == "rounds = 7\n"
