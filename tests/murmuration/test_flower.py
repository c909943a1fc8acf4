"""What an app of one's own may use: it is there, light, and does what its page shows."""

import doctest
import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import NeighboringRelation, PrivacyConfig, SamplingMethod, ServerApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideAdaptiveClipping,
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
)
from rooms import ROOT

from murmuration import InputError, Run, flower
from murmuration.client.app import app
from murmuration.sims.population.population import Population
from murmuration.sims.runtimes.local import LocalGrid


def test_all_names_are_there():
    assert flower.__all__ == ["PldAccountant", "client_app", "run_local", "train"]
    assert set(flower.__all__) <= set(dir(flower))
    assert isinstance(flower.client_app, ClientApp)
    with pytest.raises(AttributeError, match="no attribute 'Ledger'"):
        _ = flower.Ledger


@pytest.mark.parametrize("name", ["train", "run_local"])
def test_docstrings_are_whole(name):
    function = getattr(flower, name)
    signature = inspect.signature(function)
    assert all(p.annotation is not p.empty for p in signature.parameters.values())
    text = inspect.getdoc(function) or ""
    assert all(parameter in text for parameter in signature.parameters)


def test_the_example_does_what_it_shows(few_people, quick_runs, tmp_path, monkeypatch, capsys):
    """With as many people as its round asks, and some."""
    monkeypatch.setattr(Population, "_user_count", lambda _, split: 900 if split == "train" else 30)
    monkeypatch.chdir(tmp_path)
    (example,) = doctest.DocTestFinder().find(flower.train, "train", globs={})
    result = doctest.DocTestRunner().run(example, clear_globs=True)
    assert result.attempted == 6
    assert result.failed == 0, capsys.readouterr().out


def test_a_clients_app_imports_little():
    """Flower starts a process for every message."""
    code = (
        "import sys; from murmuration import flower; flower.client_app; "
        "print([n for n in sys.modules if n.split('.')[0] in ('torch', 'scipy', 'sklearn')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "[]\n"


@pytest.fixture
def given(quick_runs, crowd, crowd_test, tmp_path):
    """A grid of two nodes, and the context of a ServerApp on it."""
    config = {
        "data": crowd, "test": crowd_test, "delta": 1e-3, "users": 40, "cohort": 10, "rounds": 2,
        "epsilon": 8.0, "out": str(tmp_path / "run"),
    }  # fmt: skip
    return LocalGrid(app, 2, config), Context(1, 0, {}, RecordDict(), config)


def test_settings_take_the_place_of_the_run_configs(given, tmp_path):
    lines = []
    run = flower.train(*given, on_round=lines.append, rounds=3, clip_norm=0.2)
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert lines[-1]["epsilon"] == run.result["epsilon"] <= 8.0
    assert Run.load(tmp_path / "run").result == run.result
    assert '"clip_norm": 0.2' in (tmp_path / "run" / "config.json").read_text()


@pytest.mark.parametrize("settings", [{"epsylon": 3.0}, {"rounds": "many"}, {"epsilon": -1.0}])
def test_a_setting_that_is_none_is_refused_by_name(given, settings, tmp_path):
    (name,) = settings
    with pytest.raises(InputError, match=name):
        flower.train(*given, **settings)
    assert not (tmp_path / "run").exists()


CLIENTS = 100
RELATION, SAMPLING = NeighboringRelation.ADD_OR_REMOVE_ONE, SamplingMethod.NO_AMPLIFICATION


def by_flower(make, updates, *, examples=(), rounds=1):
    """The strategy of Flower's that ``make`` wraps around FedAvg, after rounds in which each client
    has its update; and the model."""
    client, server, after = ClientApp(), ServerApp(), []

    @client.train()
    def train(message, context):
        (mean,) = message.content.array_records["arrays"].to_numpy_ndarrays()
        place = int(context.node_config["partition-id"])
        count = MetricRecord({"num-examples": examples[place] if examples else 1})
        moved = ArrayRecord([mean + updates[place]])
        return Message(RecordDict({"arrays": moved, "metrics": count}), reply_to=message)

    @server.main()
    def main(grid, context):
        strategy = make(FedAvg(min_available_nodes=CLIENTS, fraction_evaluate=0.0))
        result = strategy.start(grid, ArrayRecord([np.zeros(1)]), num_rounds=rounds)
        after.extend([strategy, float(result.arrays.to_numpy_ndarrays()[0][0])])

    flower.run_local({}, nodes=CLIENTS, server_app=server, client_app=client)
    return after


def fixed(accountant=None, noise=1e-9):
    how = {"accountant": accountant} if accountant else {}
    make = DifferentialPrivacyServerSideFixedClipping
    return lambda inner: make(inner, noise, 1.0, CLIENTS, **how)


@pytest.mark.parametrize("accounted", [False, True])
def test_what_a_page_says_of_flowers_fixed_clipping(accounted):
    """Where this fails, Flower has mended it: then the page is wrong."""
    accountant = None
    if accounted:
        config = PrivacyConfig(1e-5, CLIENTS, RELATION, SAMPLING)
        accountant = flower.PldAccountant(config)
    half = [0.5] * (CLIENTS - 1)
    with pytest.raises(ZeroDivisionError):
        by_flower(fixed(accountant, 1.0), [0.0, *half])
    assert np.isnan(by_flower(fixed(accountant, 1.0), [float("nan"), *half])[1])
    heavy = {"updates": [1.0] + [1e-4] * (CLIENTS - 1), "examples": [10_000] + [1] * (CLIENTS - 1)}
    if accounted:
        with pytest.raises(ValueError, match="equal client weights"):
            by_flower(fixed(accountant), **heavy)
    else:
        assert by_flower(fixed(), **heavy)[1] == pytest.approx(0.99, abs=0.001)


def test_what_a_page_says_of_flowers_adaptive_clipping():
    make = DifferentialPrivacyServerSideAdaptiveClipping
    updates = [0.5 + place / CLIENTS for place in range(CLIENTS)]
    strategy, _ = by_flower(lambda inner: make(inner, 1e-4, CLIENTS, 0.5), updates, rounds=40)
    assert strategy.clipping_norm < 0.02 < np.median(updates)
