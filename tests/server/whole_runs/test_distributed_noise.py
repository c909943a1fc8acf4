"""Whole runs whose noise the nodes add: two figures, in result, report and ledger."""

import json
import math

import pytest

from murmuration.cli.ledger import ledger
from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.kinds.linear import LinearModel
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.discrete_gaussian import installed
from murmuration.server.run import run_training
from murmuration.sims.population.population import Population, write
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

pytestmark = pytest.mark.skipif(not installed(), reason="needs OpenDP")

SETTINGS = {
    "adjacency": "zero-out",
    "epsilon": 4.0,
    "delta": 1e-4,
    "rounds": 3,
    "cohort": 15,
    "secure_aggregation": True,
    "noise": "distributed",
}


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    write(folder, Population(users=60, test_users=20, unseen_users=2, seed=3))
    return folder


@pytest.fixture
def make_run(people, tmp_path):
    """A function: a run of these settings over so many nodes; its result and its folder."""

    def make(nodes=4, **changes):
        config = RunConfig(
            data=str(people / "train.jsonl.gz"),
            test=str(people / "test.jsonl.gz"),
            out=str(tmp_path / "run"),
            **{**SETTINGS, **changes},
        )
        grid = LocalGrid(client_app, nodes, config.to_run_config())
        return run_training(
            config, grid, LinearModel(HashingFeatures(dimension=64))
        ), tmp_path / "run"

    return make


def test_both_figures_and_neither_in_the_place_of_the_other(make_run, capsys):
    result, out = make_run()
    assert result["epsilon"] <= 4.0
    event = PoissonGaussian(1.0, result["noise_multiplier"])
    terms = {"adjacency": Adjacency.ZERO_OUT, "delta": 1e-4}
    expected = accountant.epsilon([(event, 3)], **terms)
    assert result["epsilon_against_server"] == pytest.approx(expected, abs=1e-3)
    assert result["epsilon_against_server"] > 2 * result["epsilon"]
    assert (result["noise"], result["noise_parties"], result["warnings"]) == ("distributed", 3, [])
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "ε against the server itself" in page
    assert "3 of the nodes in each sum" in page
    with pytest.raises(SystemExit) as ended:
        ledger(out, as_json=True)
    assert ended.value.code == 0
    said = json.loads(capsys.readouterr().out)
    assert said["epsilon_against_server"] == pytest.approx(result["epsilon_against_server"])
    with pytest.raises(SystemExit):
        ledger(out)
    assert "against the server itself" in capsys.readouterr().out


def test_where_the_server_adds_the_noise_nothing_is_said_of_what_it_sees(make_run):
    result, out = make_run(noise="discrete")
    assert result["epsilon_against_server"] is None
    assert result["noise_parties"] is None
    assert "against the server" not in (out / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "els", "group_size": 2},
        {"strategy": "adaptive"},
        {"strategy": "aup"},
        {"strategy": "dp-fedavg"},
        {"strategy": "label-moment", "adjacency": "replace-labels", "rounds": 1},
    ],
    ids=lambda settings: settings["strategy"],
)
def test_every_strategy_that_has_it(make_run, settings):
    result, _ = make_run(**settings)
    assert result["rounds"] == settings.get("rounds", 3)
    assert math.isfinite(result["epsilon_against_server"])
    sampled = settings["strategy"] in ("adaptive", "aup", "dp-fedavg")
    more = result["epsilon_against_server"] / result["epsilon"]
    assert more > 2 if sampled else more == pytest.approx(1.0)


def test_honest_nodes_are_as_many_shares(make_run):
    assert make_run(nodes=5, honest_nodes=2)[0]["noise_parties"] == 2


def test_two_nodes_are_refused_before_anything_is_released(make_run, tmp_path):
    with pytest.raises(InputError, match="needs 3 nodes"):
        make_run(nodes=2)
    assert not (tmp_path / "run" / "result.json").exists()
