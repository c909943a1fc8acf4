"""Code of other packages at an owner's agent: none but what the policy names is imported."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from agents import POLICY, stated, work
from packages import install

from murmuration.client.agent.policy import PolicyRefusal
from murmuration.preference.data.errors import InputError
from murmuration.privacy import extensions

EVENT = """
from dataclasses import dataclass
from typing import ClassVar

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF


@dataclass(frozen=True)
class Rogue:
    kind: ClassVar[str] = "rogue-event"
    epsilon: float

    def loss(self, adjacency, interval):
        return (DiscretePMF.worst(self.epsilon, 0.0, interval),)
"""
LOSS = """
import torch

from murmuration.preference.models import pair_loss


class Logistic:
    def log_cdf(self, z):
        return torch.nn.functional.logsigmoid(z)

    def log_slope(self, z):
        return torch.sigmoid(-z)


LOSS = pair_loss("rogue-loss", Logistic(), help="for pairs", scores="log odds")
"""
NAMES = ("rogue-event", "rogue-loss")


@pytest.fixture(autouse=True)
def rogue(tmp_path, monkeypatch):
    """A package with an event and a loss is installed, to the agent's own child processes too."""

    def forget():
        extensions._points.cache_clear()
        extensions._loaded.cache_clear()
        for name in ("rogue_event", "rogue_loss"):
            sys.modules.pop(name, None)

    points = {
        "murmuration.events": {"rogue-event": "rogue_event:Rogue"},
        "murmuration.losses": {"rogue-loss": "rogue_loss:LOSS"},
    }
    site = install(tmp_path / "site", "rogue", points, {"rogue_event": EVENT, "rogue_loss": LOSS})
    monkeypatch.syspath_prepend(str(site))
    forget()
    yield
    monkeypatch.undo()
    forget()


def imported():
    return {name for name in sys.modules if name.startswith("rogue")}


def charged_rogue():
    plan = json.loads(stated().to_json())
    plan["charges"] = [[{"kind": "rogue-event", "epsilon": 0.01}, 20]]
    return SimpleNamespace(to_json=lambda: json.dumps(plan))


def test_no_event_is_imported_that_the_policy_does_not_name(make):
    agent = make(replace(POLICY, extensions=("rogue-loss",)))
    with pytest.raises(PolicyRefusal, match="unknown event kind 'rogue-event'"):
        agent.handle("train", work(plan=charged_rogue()))
    assert imported() == set()
    assert agent.ledger.plans == {}


def test_no_loss_is_imported_that_the_policy_does_not_name(make):
    agent = make(replace(POLICY, extensions=("rogue-event",)))
    with pytest.raises(InputError, match="--model must be one of btl"):
        agent.handle("train", work(model="rogue-loss"))
    assert imported() == set()


def test_what_the_policy_names_is_used(make):
    agent = make(replace(POLICY, extensions=NAMES))
    agent.handle("train", work(model="rogue-loss"))
    assert imported() == {"rogue_loss"}
    assert agent.ledger.answered["train"] == 1
