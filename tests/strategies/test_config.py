"""Settings: the same keys everywhere, and messages that name the option."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.mechanisms.hold_out import LEAST_SHARE
from murmuration.strategies import registry
from murmuration.strategies.config import SETTINGS, RunConfig, present_names, read_settings
from murmuration.strategies.settings.catalogue import OF_STRATEGIES
from murmuration.strategies.settings.declaration import about, declared
from murmuration.strategies.settings.privacy import parse_delta
from murmuration.strategies.settings.run import Settings

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_round_trip():
    config = RunConfig(data="d", epsilon=0.5, rounds=7, resume=True, seed=3, out="o", group_size=4)
    assert RunConfig.from_run_config(config.to_run_config()) == config
    assert RunConfig.from_run_config({}) == RunConfig()


def test_keys_and_defaults_are_those_of_pyproject():
    """Flower refuses an override of a key that is not in pyproject.toml."""
    settings = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["tool"]["flwr"]["app"]["config"]
    # What a field says by itself: 0 rounds are as many as suit the strategy, which is overridden.
    expected = {f.name.replace("_", "-"): f.default for f in SETTINGS.values()}
    assert settings == expected
    assert RunConfig.from_run_config(settings) == RunConfig()
    assert {k: type(v) for k, v in settings.items()} == {k: type(v) for k, v in expected.items()}


def test_whole_numbers_serve_as_real_ones():
    config = RunConfig.from_run_config({"epsilon": 3, "on-bad-rows": "skip"})
    assert config.epsilon == 3.0
    assert type(config.epsilon) is float
    assert config.on_bad_rows == "skip"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsylon": 3.0}, "unknown setting 'epsylon'"),
        ({"rounds": 3.0}, "'rounds' must be a int"),
        ({"rounds": True}, "'rounds' must be a int"),
        ({"epsilon": "3"}, "'epsilon' must be a float"),
        ({"resume": 1}, "'resume' must be a bool"),
        ({"data": 5}, "'data' must be a str"),
    ],
)
def test_wrong_types_and_unknown_keys(settings, message):
    with pytest.raises(InputError, match=message):
        RunConfig.from_run_config(settings)


def test_delta_by_the_number_of_users():
    assert parse_delta("1e-6") == 1e-6
    config = RunConfig(delta=parse_delta("n^-1.1"))
    assert config.resolved(2500).delta == pytest.approx(2000**-1.1)  # a fifth is held out
    assert replace(config, test="t").resolved(2000).delta == pytest.approx(2000**-1.1)
    assert replace(config, users=10**5).resolved(2000).delta == pytest.approx(1e-5 * 10**-0.5)
    assert RunConfig(cohort=500).resolved(2000) == RunConfig(cohort=500)
    for text in ("0", "1", "-1e-5", "nan", "n^-2", ""):
        with pytest.raises(InputError, match="--delta must be"):
            parse_delta(text)


@pytest.mark.parametrize(
    ("users", "cohort"), [(1, 1), (60, 60), (171, 100), (500, 100), (1000, 200), (9000, 500)]
)
def test_a_cohort_left_out_follows_from_the_stated_number_of_users(users, cohort):
    config = RunConfig(users=users, test="t")
    for registered in (users, 10 * users, 7):  # which decide nothing
        assert config.resolved(registered).cohort == cohort
    roster = RunConfig(adjacency="zero-out", test="t")
    assert roster.resolved(users).cohort == cohort
    held_out = RunConfig(adjacency="zero-out", heldout=0.5)
    assert held_out.resolved(2 * users).cohort == cohort
    assert RunConfig(strategy="nonprivate", test="t").resolved(users).cohort == cohort


def test_a_private_number_of_users_decides_no_cohort():
    config = RunConfig(test="t")
    assert {config.resolved(registered).cohort for registered in (500, 501, 4000)} == {500}
    with pytest.raises(InputError) as refused:
        config.resolved(171)
    text = str(refused.value)
    assert "--users" in text and "--cohort" in text and "zero-out" in text and "171" not in text
    assert RunConfig(test="t", cohort=17).resolved(171).cohort == 17


def test_everybody_takes_part_where_there_are_no_cohorts():
    config = RunConfig(strategy="label-moment", adjacency="replace-labels", test="t")
    assert config.resolved(171).cohort == 171


def test_immutable_is_what_decides_the_result_or_its_cost():
    changeable = {"out", "resume", "accept_ledger_loss", "timeout", "seed", "min_nodes"}
    changeable |= {"registration"}
    for strategy in registry.OURS:
        own = {field.name for field in declared(strategy.settings)}
        every = {field.name for field in declared(Settings)}
        config = RunConfig(
            seed=5, strategy=strategy.name, adjacency=min(strategy.adjacencies).value
        )
        assert set(config.immutable_fields()) == (every | own) - changeable


FORMER = {
    "most-judgements": ("max_judgements", 7),
    "most-characters": ("max_characters", 8),
    "clip": ("clip_norm", 0.25),
    "ball": ("max_norm", 2.0),
    "batch": ("batch_size", 9),
    "least-nodes": ("min_nodes", 3.0),
}


@pytest.mark.parametrize("former", FORMER)
def test_former_names_are_read(former, tmp_path):
    """In Flower's run config, in a config.json, and in a TOML file for ``--config``."""
    name, value = FORMER[former]
    strategy = {"ball": "label-moment", "batch": "local-label"}.get(former, "uls")
    given = {former: value, "strategy": strategy}
    if strategy != "uls":
        given["adjacency"] = "replace-labels"
    assert present_names(given)[name] == value
    if former != "batch":  # for --task policy only
        assert RunConfig.from_run_config(given).to_run_config()[name.replace("_", "-")] == value
    file = tmp_path / "config.json"
    file.write_text(json.dumps({key.replace("-", "_"): each for key, each in given.items()}))
    assert read_settings(file)[name] == value
    if former == "least-nodes":
        return  # deployments are set by other files
    file = tmp_path / "settings.toml"
    file.write_text(tomli_w.dumps(given))
    assert read_settings(file)[name] == value


def test_every_former_name_was_tried():
    every = {about(f).former for f in SETTINGS.values()} - {""}
    assert every == {former.replace("-", "_") for former in FORMER}


def test_both_names_of_a_setting_are_refused(tmp_path):
    with pytest.raises(InputError, match="clip is the former name of clip_norm: give one of them"):
        RunConfig.from_run_config({"clip": 0.1, "clip-norm": 0.1})
    file = tmp_path / "settings.toml"
    file.write_text("clip = 0.1\nclip-norm = 0.1\n")
    with pytest.raises(InputError, match=r"settings.toml: clip is the former name of clip_norm"):
        read_settings(file)


def test_strategies_have_the_settings_that_are_declared_for_them():
    assert {s.name: s.settings for s in registry.OURS} == OF_STRATEGIES
    assert [s.name for s in registry.OURS] == list(OF_STRATEGIES)


def test_the_least_share_that_can_be_held_out():
    RunConfig(heldout=LEAST_SHARE)
    with pytest.raises(InputError, match="--heldout must be a share"):
        RunConfig(heldout=LEAST_SHARE * 0.999)
