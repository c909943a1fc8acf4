"""examples/own_strategy: a strategy of another package, from the command line to a node."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from packages import EXAMPLES, pip_install

from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies import registry
from murmuration.strategies.config import RunConfig
from murmuration.strategies.planning import PlanQuery
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.stated_plan import PARAMETER, StatedPlan

EXAMPLE = EXAMPLES / "own_strategy"
ROOT = Path(__file__).parents[2]
FEATURES = json.dumps(HashingFeatures(dimension=33).to_config())
CACHED = (
    registry._loaded,
    registry.strategies,
    registry.node_halves,
    registry.allowable,
    registry.solved,
)


@pytest.fixture
def example(monkeypatch):
    """The module of the example, as if its package were installed."""
    spec = importlib.util.spec_from_file_location("sign_uls", EXAMPLE / "sign_uls.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "sign_uls", module)
    spec.loader.exec_module(module)
    point = SimpleNamespace(
        name="sign-uls", value="sign_uls:SIGN_ULS", load=lambda: module.SIGN_ULS
    )
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    for cached in CACHED:
        cached.cache_clear()
    yield module
    for cached in CACHED:
        cached.cache_clear()


def work(**changes):
    plan = StatedPlan.of("run", Adjacency.ZERO_OUT, 1e-6, 20, {PoissonGaussian(0.5, 9.0): 20})
    parameters = {"strategy": "sign-uls", "round": 1, "features": FEATURES, "clip-norm": 1.0}
    parameters |= {"group-size": 4, PARAMETER: plan.to_json(), **changes}
    return messages.TrainRequest({}, parameters, messages.NOBODY)


def test_one_user_moves_the_sum_by_no_more_than_the_sensitivity(example):
    generator = torch.Generator().manual_seed(0)
    clip = example.SignClip(0.7)
    grads_BD = torch.randn(9, 33, generator=generator) * 10.0 ** torch.arange(-4, 5)[:, None]
    grads_BD[3] = torch.tensor(float("nan"))
    grads_BD[4, :5] = 0.0
    whole_D = clip.clip_sum(grads_BD)
    for user in range(9):
        others_BD = torch.cat([grads_BD[:user], grads_BD[user + 1 :]])
        moved = float(torch.linalg.vector_norm(whole_D - clip.clip_sum(others_BD)))
        assert moved <= clip.sensitivity(Adjacency.ADD_REMOVE)
        assert moved == pytest.approx(0.0 if user == 3 else 0.7, rel=0.1)
    signs_BD = np.sign(np.nan_to_num(grads_BD.numpy())) * 0.7 / math.sqrt(33)
    np.testing.assert_allclose(whole_D.numpy(), signs_BD.sum(0), atol=1e-5)


def test_everything_derives_from_it(example):
    assert RunConfig(strategy="sign-uls").rounds == 200
    with pytest.raises(InputError, match="--variant is for --strategy aup, not sign"):
        RunConfig(strategy="sign-uls").changed(variant="published")
    asked = PlanQuery(
        strategy="sign-uls", users=400, cohort=40, rounds=30, delta=1e-5, noise_multiplier=20.0
    )
    found = registry.named("sign-uls").solve(asked, Adjacency.ADD_REMOVE)
    assert 0.0 < found["epsilon"] < 1.0


def test_a_node_answers_it_only_where_its_owner_allows_it(example):
    terms = {"max_epsilon": 9.0, "max_clip": 1.0, "max_group_size": 4, "max_rounds": 20}
    allowed = Policy(strategies=("sign-uls",), **terms)
    assert allowed.check_work(work()).rounds == 20
    with pytest.raises(PolicyRefusal, match="strategies"):
        Policy(strategies=("uls",), **terms).check_work(work())
    with pytest.raises(PolicyRefusal, match="max_clip"):
        allowed.check_work(work(**{"clip-norm": 1.1}))


def test_where_the_package_is_missing_no_policy_can_allow_it():
    with pytest.raises(InputError, match="policy strategies must be some of"):
        Policy(strategies=("sign-uls",))
    with pytest.raises(PolicyRefusal, match="strategies"):
        Policy(strategies=("uls",), max_clip=1.0).check_work(work())


def test_it_runs_from_the_command_line(tmp_path, crowd, crowd_test):
    place = pip_install(EXAMPLE, tmp_path)
    command = [sys.executable, "-m", "murmuration", "run", "--strategy", "sign-uls", "--json"]
    command += ["--data", crowd, "--test", crowd_test, "--epsilon", "8", "--delta", "1e-3"]
    command += ["--rounds", "3", "--cohort", "20", "--seed", "0", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["strategy"], result["rounds"]) == ("sign-uls", 3)
    assert 0.0 < result["epsilon"] <= 8.0
