"""Runs over owners' agents: who refuses is known before the first coin, at nobody's cost."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from local_runs import private_log

import murmuration.client.agent.agent
import murmuration.client.app
import murmuration.client.store
from murmuration.client.agent.agent import Agent
from murmuration.client.agent.policy import Policy
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import Judgements
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.protocol.availability import Reason, RunAborted

pytestmark = pytest.mark.settings(
    data="",
    test="crowd_test",
    adjacency="zero-out",
    epsilon=3.0,
    delta=1e-6,
    rounds=4,
    cohort=12,
    users=24,
    clip_norm=0.1,
    group_size=16,
    timeout=60.0,
    seed=-1,
)

POLICY = Policy(
    strategies=("uls",),
    max_epsilon=3.0,
    delta=1e-6,
    max_clip=0.1,
    max_group_size=16,
    max_rounds=8,
    max_evaluations=2,
)


@pytest.fixture(autouse=True)
def in_this_process(quick_runs, monkeypatch):
    """Tokenizers are loaded here; what confines them has its own tests."""
    monkeypatch.setattr(murmuration.client.store, "confined", nullcontext)


@pytest.fixture
def crowd_of(tmp_path, make_rows, monkeypatch):
    """A function: a grid over agents with these policies, six users at each, and the agents."""
    made: dict[str, Agent] = {}
    monkeypatch.setattr(
        murmuration.client.app,
        "ask_agent",
        lambda path, kind, content: made[path].handle(kind, content),
    )

    def crowd(config, *policies):
        rows = make_rows([3, 4, 2, 2, 3, 1] * len(policies))
        names = sorted({row["user_id"] for row in rows})
        for number, policy in enumerate(policies):
            if (former := made.pop(str(number), None)) is not None:
                former.ledger.close()
            mine = set(names[number :: len(policies)])
            judged = Judgements.from_rows([row for row in rows if row["user_id"] in mine])
            state = tmp_path / f"state{number}"
            made[str(number)] = Agent(UserStore(judged, place=-1), policy, state)
        nodes = [{"agent": str(number)} for number in range(len(policies))]
        grid = LocalGrid(
            murmuration.client.app.app, len(nodes), config.to_run_config(), node_configs=nodes
        )
        return grid, list(made.values())

    yield crowd
    for agent in made.values():
        agent.ledger.close()


def refused(config, grid):
    """Of a run that was aborted: what it said."""
    with pytest.raises(RunAborted) as caught:
        run_training(config, grid)
    assert caught.value.reason is Reason.REFUSED
    folder = Path(config.out)
    said = json.loads((folder / "aborted.json").read_text())
    assert said == {"aborted": caught.value.reason.value, "because": caught.value.sentence}
    assert "\n" not in str(caught.value)
    assert not (folder / "result.json").exists()
    return caught.value


@pytest.mark.parametrize(
    ("rule", "policy", "changes"),
    [
        ("max_epsilon", replace(POLICY, delta=1e-9), {}),
        ("max_evaluations", replace(POLICY, max_evaluations=0), {"test": ""}),
        ("adjacency", POLICY, {"adjacency": "replace"}),
        ("secure_only", replace(POLICY, secure_only=True), {}),
        ("label_epsilon", Policy(label_epsilon=1.0), {}),
    ],
)
def test_a_run_that_every_owner_refuses_ends_before_any_coin(
    crowd_of, config, rule, policy, changes
):
    config = replace(config, **changes)
    grid, agents = crowd_of(config, *[policy] * 4)
    found = refused(config, grid)
    assert f"by the rules {rule}: nothing was drawn" in str(found)
    assert read_charges(Path(config.out) / "ledger.jsonl") == []
    assert not any("cohort" in line for line in private_log(config))
    for agent in agents:
        assert not agent.ledger.plans, "an owner was charged for being asked"
        assert set(agent.ledger.answered) <= {"query.registry"}
        last = agent.ledger.path.read_text().splitlines()[-1]
        assert f"({rule})" in last  # with its text, which nobody else gets
    counted = next(line for line in private_log(config) if "would refuse" in line)
    assert set(counted["would refuse"].values()) == {rule}


def test_a_minority_that_refuses_is_counted_and_the_run_goes_on(crowd_of, config):
    other = replace(POLICY, max_clip=0.01)
    grid, agents = crowd_of(config, POLICY, POLICY, POLICY, other)
    assert run_training(config, grid)["rounds"] == 4
    counted = next(line for line in private_log(config) if "would refuse" in line)
    assert counted["shown the plan"] == 4
    assert list(counted["would refuse"].values()) == ["max_clip"]
    for path in Path(config.out).rglob("*"):  # that somebody refuses may depend on who is there
        if path.is_file() and path.parent.name != "private":
            assert b"max_clip" not in path.read_bytes(), path
    assert not agents[3].ledger.plans


@pytest.mark.parametrize(
    ("least", "goes_on"), [(0.5, True), (0.51, False), (3.0, False), (0.0, True)]
)
def test_least_nodes_decides_how_many_must_be_willing(crowd_of, config, least, goes_on):
    # Two rounds: after three with answers for fewer than half, by their coins, a run would end.
    config = replace(config, min_nodes=least, rounds=2)
    other = replace(POLICY, max_clip=0.01, max_epsilon=0.1)
    grid, _ = crowd_of(config, POLICY, other, POLICY, other)
    if goes_on:
        assert run_training(config, grid)["rounds"] == 2
    else:
        assert "max_clip" in str(refused(config, grid))


def test_with_users_of_less_than_half_a_run_is_not_begun(crowd_of, config):
    """It would end after three rounds, each of them charged."""
    config = replace(config, min_nodes=0.0)
    other = replace(POLICY, max_clip=0.01)
    grid, _ = crowd_of(config, POLICY, other, other)
    refused(config, grid)


def test_what_was_begun_and_is_resumed_is_asked_from_its_next_round_on(crowd_of, config):
    policy = replace(POLICY, max_rounds=6)
    config = replace(config, cohort=24)
    grid, agents = crowd_of(config, *[policy] * 4)
    real, rounds = grid.push_messages, []

    def until_third(outgoing):
        outgoing = list(outgoing)
        rounds.extend(int(m.metadata.group_id) for m in outgoing)
        if any(m.metadata.message_type == "train" and m.metadata.group_id == "3" for m in outgoing):
            raise ConnectionError
        return real(outgoing)

    grid.push_messages = until_third
    with pytest.raises(ConnectionError):
        run_training(config, grid)
    assert all(agent.ledger.answered["train"] == 2 for agent in agents)
    grid.push_messages = real
    assert run_training(replace(config, resume=True), grid)["rounds"] == 4
    assert all(agent.ledger.answered["train"] == 4 for agent in agents)


def test_a_simulation_asks_nobody(config, crowd):
    config = replace(config, data=crowd, adjacency="add-remove", seed=1)
    grid = LocalGrid(murmuration.client.app.app, 3, config.to_run_config())
    run_training(config, grid)
    assert not any("shown the plan" in line for line in private_log(config))


def test_who_comes_later_is_shown_the_plan_then(crowd_of, config, refreshed):
    refreshed(2)
    grid, agents = crowd_of(config, POLICY, POLICY, replace(POLICY, max_clip=0.01))
    there = [1, 2]
    grid.get_node_ids = lambda: list(there)
    real = grid.push_messages

    def push(outgoing):
        outgoing = list(outgoing)
        if any(message.metadata.group_id == "2" for message in outgoing):
            there[:] = [1, 2, 3]
        return real(outgoing)

    grid.push_messages = push
    assert run_training(config, grid)["rounds"] == 4
    shown = [line for line in private_log(config) if "would refuse" in line]
    assert [(line["round"], line["shown the plan"]) for line in shown] == [(1, 2), (3, 1)]
    assert [list(line["would refuse"].values()) for line in shown] == [[], ["max_clip"]]
    assert not agents[2].ledger.plans


def test_an_honest_run_over_agents_holds_users_out_and_is_refused_nothing(crowd_of, config):
    config = replace(config, test="", delta=1e-3)
    grid, agents = crowd_of(config, *[replace(POLICY, delta=1e-3)] * 4)
    result = run_training(config, grid)
    assert (result["rounds"], result["heldout_epsilon"]) == (4, 1.5)
    assert not any("left out" in line or "not evaluated" in line for line in private_log(config))
    for agent in agents:
        (plan,) = agent.ledger.plans.values()
        assert plan.epsilon() == pytest.approx(result["epsilon"])
        halves = [agent.ledger.asked(kind, plan.run) for kind in ("train", "evaluate")]
        assert halves[0].isdisjoint(halves[1])
        assert {*halves[0], *halves[1]} <= {*agent.store.keys_U.tolist()}
        assert not agent.ledger.refusals
    assert sum(agent.ledger.answered["evaluate"] for agent in agents)


def test_a_group_size_that_owners_do_not_help_to_choose_must_be_given(crowd_of, config):
    config = replace(config, strategy="els", group_size=0, epsilon=2.5, delta=1e-3)
    policy = replace(POLICY, strategies=("els",), max_clip=2.0, delta=1e-3)
    grid, agents = crowd_of(config, *[policy] * 3)
    with pytest.raises(RunAborted, match=r"owners' policies: .* state --group-size instead"):
        run_training(config, grid)
    for agent in agents:
        assert not agent.ledger.plans
        refused_by = agent.ledger.path.read_text()
        assert "(strategies): numbers of judgements are not told" in refused_by
    given = replace(config, group_size=4, out=config.out + "-given")
    grid, agents = crowd_of(given, *[policy] * 3)
    assert run_training(given, grid)["group_size"] == 4
    assert all(agent.ledger.answered["train"] for agent in agents)


# A private choice among policies, as docs/how-to/policies.md says that owners allow it.

#: TOML, for a reference and its policies.
CHOICE = """
strategies = ["exponential"]
tasks = ["policy"]
features = {features}
max_clip = 1.733
max_epsilon = 1.0
max_rounds = 2
"""


@pytest.fixture
def choice(choice_config):
    """Settings of a run that nodes with owners can answer."""
    return replace(choice_config, data="", adjacency="zero-out", delta=1e-6, seed=-1, timeout=60.0)


@pytest.fixture
def allowing(tmp_path, language_model, four_policies):
    """A function: the policy that an owner's file holds, with some text in it replaced."""
    folders = [language_model("gpt2"), *map(str, four_policies)]

    def load(old="", new=""):
        file = tmp_path / "policy.toml"
        text = CHOICE.format(features=json.dumps(folders))
        assert old in text
        file.write_text(text.replace(old, new, 1) if old else text)
        return Policy.load(file)

    return load


def test_owners_who_allow_a_choice_are_asked_once(crowd_of, choice, allowing):
    grid, agents = crowd_of(choice, *[allowing()] * 3)
    result = run_training(choice, grid)
    assert result["choice"]["name"] in {"p0", "p1", "p2", "p3"}
    (charge,) = read_charges(Path(choice.out) / "ledger.jsonl")
    for agent in agents:
        assert agent.ledger.answered["train"] == 1 and not agent.ledger.refusals
        ((event, times),) = next(iter(agent.ledger.plans.values())).charges
        assert (event, times) == (charge.event, 1)


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        ("tasks", '"policy"', '"sft"'),
        ("features", "/p3", "/other"),
        ("max_clip", "1.733", "1.732"),  # of four policies it is the root of three
    ],
)
def test_a_choice_that_owners_refuse_is_refused_by_name(crowd_of, choice, allowing, rule, old, new):
    grid, agents = crowd_of(choice, *[allowing(old, new)] * 3)
    found = refused(choice, grid)
    # What is to be computed is asked for with the registry, before there is a plan.
    named = "(by the rule {})" if rule in ("tasks", "features") else "by the rules {}: nothing"
    assert named.format(rule) in str(found)
    assert not (Path(choice.out) / "ledger.jsonl").exists() or not read_charges(
        Path(choice.out) / "ledger.jsonl"
    )
    for agent in agents:
        assert not agent.ledger.plans and not agent.ledger.answered["train"]


def test_a_choice_that_a_crash_interrupted_is_asked_for_again(crowd_of, choice, allowing):
    """By the same owners, who are charged once, and the run once: nothing had been drawn."""
    grid, agents = crowd_of(choice, *[allowing()] * 3)
    pull = grid.pull_messages

    def dies(ids):
        found = list(pull(ids))
        if any(message.metadata.message_type == "train" for message in found):
            raise ConnectionError
        return found

    grid.pull_messages = dies
    with pytest.raises(ConnectionError):
        run_training(choice, grid)
    assert [agent.ledger.answered["train"] for agent in agents] == [1] * 3
    grid.pull_messages = pull
    assert run_training(replace(choice, resume=True), grid)["epsilon"] <= 1.0
    assert len(read_charges(Path(choice.out) / "ledger.jsonl")) == 1
    assert [agent.ledger.answered["train"] for agent in agents] == [2] * 3
    assert all(len(agent.ledger.plans) == 1 for agent in agents)
