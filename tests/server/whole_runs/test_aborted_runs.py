"""Runs whose nodes fail: they end, charged for what was asked, and never look like success."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Error, Message
from local_runs import private_log

from murmuration.client import answers
from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.reward import RewardModel
from murmuration.privacy.accounting.ledger import read_charges
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry
from murmuration.strategies.protocol.availability import Reason, RunAborted

pytestmark = [
    pytest.mark.usefixtures("quick_runs"),
    pytest.mark.settings(
        test="crowd_test", epsilon=4.0, rounds=6, cohort=25, users=50, timeout=0.1, seed=-1
    ),
]

VARIANTS = {"aup": ("centred", "published")}
#: One chooses among policies (see test_a_choice_…), one needs a list of items.
STRATEGIES = [s for s in registry.strategies() if s not in ("exponential", "ranking")]
EACH = [(s, v) for s in STRATEGIES for v in VARIANTS.get(s, ("centred",))]
SECRET = "alice-4711"
NEVER = 10**9


class Deployed(LocalGrid):
    """Nodes that know of no others; from a round on, ``fault`` answers for some of them."""

    def __init__(self, config, fault=None, nodes=4, bad=range(1, 100), since=NEVER):
        super().__init__(client_app, nodes, config.to_run_config())
        self.fault, self.bad, self.since = fault, bad, since

    def pull_messages(self, ids):
        for message_id in list(ids):
            asked = self._pending.get(message_id)
            for reply in super().pull_messages([message_id]):
                if reply.metadata.message_type == "query.registry":
                    reply.content.config_records["registry"]["places"] = 0
                elif self.hit(asked):
                    if self.fault is not None:
                        yield error_to(asked, self.fault)
                    continue
                yield reply

    def hit(self, asked):
        about = asked.metadata
        late = int(about.group_id) >= self.since and about.message_type in ("train", "query.labels")
        return about.dst_node_id in self.bad and late


def error_to(asked, reason):
    return Message(Error(2, reason), reply_to=asked)


def charges(config):
    return [c for c in read_charges(Path(config.out) / "ledger.jsonl") if c.round > 0]


def aborted(config, grid):
    with pytest.raises(RunAborted) as caught:
        run_training(config, grid)
    folder = Path(config.out)
    assert not (folder / "result.json").exists()
    assert not (folder / "model").exists()
    said = json.loads((folder / "aborted.json").read_text())
    assert said == {"aborted": caught.value.reason.value, "because": caught.value.sentence}
    return caught.value


def of(config, strategy, variant):
    """Settings under which a strategy runs for some rounds."""
    filters = variant == "published" or strategy == "aup-corrected"
    return config.changed(
        **({"test": "", "heldout": 0.0} if strategy == "survey" else {}),
        strategy=strategy,
        variant=variant,
        adjacency=min(registry.named(strategy).adjacencies).value,
        rounds=(registry.named(strategy).rounds or (config.rounds,))[0],
        users=0 if strategy in registry.solved() else config.users,
        # A filter needs a crowd that agrees.
        **({"cohort": 50, "clip_norm": 50.0, "epsilon": 200.0} if filters else {}),
    )


@pytest.mark.parametrize(("strategy", "variant"), EACH)
def test_a_round_without_an_answer_is_charged_and_ends_the_run(config, strategy, variant):
    """Every strategy. Where everybody is asked, by no coin, it can be asked again at no cost."""
    config = of(config, strategy, variant)
    few = strategy in registry.solved()
    since = 1 if few or variant == "published" else 3
    found = aborted(config, Deployed(config, since=since))
    assert found.reason is Reason.NO_ANSWERS
    rounds = {charge.round for charge in charges(config)}
    if strategy == "local-label":
        assert rounds == {1}  # before it is asked; told labels stay told, and cost nothing again
    else:
        rest = {4, 5, 6} if variant == "published" else set()  # whose test then says no
        assert rounds == (set() if few else {1, 2, 3} | rest)
    private = private_log(config)[-1]
    assert private["aborted"] == "no answers"
    assert private["users asked"] > private["users counted"] == 0
    if variant == "published":
        return
    # Everything is in order again: the run goes on with the next round, and each is charged once.
    again = replace(config, resume=True)
    result = run_training(again, Deployed(again))
    assert (result["rounds"], result["stopped"]) == (config.rounds, None)
    assert not (Path(config.out) / "aborted.json").exists()
    by_round = [c.round for c in charges(config) if "test" not in c.covers]
    assert by_round == list(range(1, config.rounds + 1))


BUFFERED = {"sampling": "blt", "cohort": 25}
BANDED = {"sampling": "banded", "cohort": 10}


@pytest.mark.parametrize("shared", [BANDED, BUFFERED])
def test_noise_that_rounds_share_is_gone_on_with_bit_for_bit(config, monkeypatch, shared):
    config = replace(config, seed=3).changed(**shared)
    heal = fails_from(monkeypatch, 4, KeyError("grads"))
    aborted(config, LocalGrid(client_app, 2, config.to_run_config()))
    secret = Path(config.out) / "private" / "state-000003.safetensors"
    assert secret.exists()
    heal()
    again, whole = replace(config, resume=True), replace(config, out=f"{config.out}-whole")
    for each in (again, whole):
        result = run_training(each, LocalGrid(client_app, 2, each.to_run_config()))
        assert (result["rounds"], len(charges(config))) == (6, 6)
    first, second = (RewardModel.load(Path(each.out) / "model") for each in (again, whole))
    np.testing.assert_array_equal(first.theta_D, second.theta_D)
    assert not list(secret.parent.glob("state-*"))


@pytest.mark.parametrize(
    ("shared", "kinds"),
    [(BANDED, ["on-part"] * 6), (BUFFERED, ["blt-gaussian", *["blt-later"] * 5])],
)
def test_shared_noise_ends_with_an_abort_and_groups_go_on(config, shared, kinds):
    """Without a seed the round that nobody answered was charged, and released; the next goes on."""
    config = config.changed(**shared)
    aborted(config, Deployed(config, since=3))
    again = replace(config, resume=True)
    result = run_training(again, Deployed(again))
    assert (result["rounds"], result["stopped"]) == (6, None)
    assert [charge.event.kind for charge in charges(config)] == kinds
    if shared is BANDED:
        assert [charge.event.part for charge in charges(config)] == [0, 1, 0, 1, 0, 1]
    assert result["epsilon"] <= config.epsilon


@pytest.mark.parametrize("seed", [-1, 3])
def test_resuming_until_it_ends_does_not_make_noise_a_model(config, seed):
    config = replace(config, rounds=3, seed=seed)
    for asked in range(1, 4):
        aborted(replace(config, resume=asked > 1), Deployed(config, since=1))
        assert len(charges(config)) == asked
    again = replace(config, resume=True)
    with pytest.raises(InputError, match="nothing was learnt: nobody answered in any round"):
        run_training(again, Deployed(again))
    assert len(charges(config)) == 3
    assert not (Path(config.out) / "result.json").exists()


def test_what_the_public_learns_of_why(config):
    """A word of a fixed list, whatever nodes said and however many they were."""
    reasons = {
        f"KeyError: '{SECRET}'": Reason.NO_ANSWERS,
        f"the owner's policy refuses (max_rounds): {SECRET}": Reason.REFUSED,
    }
    for number, (text, reason) in enumerate(reasons.items()):
        one = replace(config, out=f"{config.out}-{number}")
        found = aborted(one, Deployed(one, fault=text, since=2))
        assert found.reason is reason
        assert SECRET not in str(found)
        assert not any(letter.isdigit() for letter in str(found))
        folder = Path(one.out)
        assert SECRET in (folder / "private" / "log.jsonl").read_text()
        for path in folder.rglob("*"):
            if path.is_file() and path.parent != folder / "private":
                assert SECRET.encode() not in path.read_bytes(), path


def fails_from(monkeypatch, round_, error, strategy="uls"):
    """The node half fails from a round on; a function that heals it."""
    real, ill = registry.node_halves()[strategy], [True]

    def node_half(examples, work, *rest):
        if ill and int(work.parameters["round"]) >= round_:
            raise error
        return real.client_update(examples, work, *rest)

    failing = dataclasses.replace(real, client_update=node_half)
    monkeypatch.setitem(registry.node_halves(), strategy, failing)
    return ill.clear


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "it ran out of memory (MemoryError)"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "it ran out of memory ("),
        (KeyError("grads"), "a node of this simulation failed: KeyError: 'grads'"),
    ],
)
def test_a_node_of_a_simulation_that_fails_ends_it_with_its_text(
    config, monkeypatch, error, said, nodes
):
    heal = fails_from(monkeypatch, 3, error)
    config = replace(config, seed=3)
    found = aborted(config, LocalGrid(client_app, nodes, config.to_run_config()))
    assert found.reason is Reason.NODE_FAILED
    assert said in str(found)
    assert len(charges(config)) == 2  # the seed brings the same cohort again
    heal()
    again = replace(config, resume=True)
    resumed = run_training(again, LocalGrid(client_app, nodes, again.to_run_config()))
    assert resumed["rounds"] == len(charges(config)) == 6
    whole = replace(config, out=f"{config.out}-whole")
    quiet = run_training(whole, LocalGrid(client_app, nodes, whole.to_run_config()))
    assert resumed["heldout_accuracy"] == quiet["heldout_accuracy"]
    assert resumed["epsilon"] == quiet["epsilon"]


def test_without_a_seed_the_cohort_that_failed_is_charged_and_not_drawn_again(config, monkeypatch):
    heal = fails_from(monkeypatch, 3, KeyError("grads"))
    aborted(config, LocalGrid(client_app, 2, config.to_run_config()))
    assert [charge.round for charge in charges(config)] == [1, 2, 3]
    heal()
    again = replace(config, resume=True)
    assert run_training(again, LocalGrid(client_app, 2, again.to_run_config()))["rounds"] == 6
    assert [charge.round for charge in charges(config)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s != "local-label"])
def test_a_simulation_whose_work_fails_ends_under_every_strategy(config, monkeypatch, strategy):
    config = replace(of(config, strategy, "centred"), seed=3)
    name = {"aup": "aup-centred"}.get(strategy, strategy)
    fails_from(monkeypatch, 1, KeyError("grads"), name)
    found = aborted(config, LocalGrid(client_app, 2, config.to_run_config()))
    assert found.reason is Reason.NODE_FAILED
    assert charges(config) == []


@pytest.fixture
def choice(choice_config):
    """Of one of several policies, by nodes that answer at once or not at all."""
    return replace(choice_config, timeout=0.1, adjacency="zero-out")


def test_a_choice_that_nobody_answers_costs_nothing(choice):
    choice = replace(choice, seed=-1)
    assert aborted(choice, Deployed(choice, since=1)).reason is Reason.NO_ANSWERS
    assert charges(choice) == []
    again = replace(choice, resume=True)
    assert run_training(again, Deployed(again))["epsilon"] <= 1.0
    assert len(charges(choice)) == 1


def test_a_choice_for_which_a_node_of_a_simulation_fails_costs_nothing(choice, monkeypatch):
    fails_from(monkeypatch, 1, KeyError("losses"), "exponential")
    found = aborted(choice, LocalGrid(client_app, 2, choice.to_run_config()))
    assert found.reason is Reason.NODE_FAILED and "KeyError: 'losses'" in str(found)
    assert charges(choice) == []


class Slow(LocalGrid):
    """Nodes that take longer than anybody waits, while they are asked to train."""

    def pull_messages(self, ids):
        for message_id in list(ids):
            if self._pending[message_id].metadata.message_type != "train":
                yield from super().pull_messages([message_id])


def test_a_simulation_that_is_too_slow_says_what_to_raise(config):
    config = replace(config, seed=3)
    found = aborted(config, Slow(client_app, 2, config.to_run_config()))
    assert "2 of 2 nodes of this simulation did not answer within 0.1 seconds" in str(found)
    assert "--timeout" in str(found)
    assert charges(config) == []


@pytest.mark.parametrize("deployed", [True, False])
def test_under_masks(config, deployed, monkeypatch):
    config = replace(config, secure_aggregation=True, adjacency="zero-out", cohort=40)
    if deployed:
        grid = Deployed(config, fault="the owner's policy refuses (max_rounds)", nodes=5, since=2)
        assert aborted(config, grid).reason is Reason.REFUSED
        assert len(charges(config)) == 2
        return
    fails_from(monkeypatch, 2, KeyError("grads"))
    found = aborted(config, LocalGrid(client_app, 5, config.to_run_config()))
    assert "KeyError: 'grads'" in str(found)
    assert len(charges(config)) == 2


class Dies(Deployed):
    """The server dies while it waits for the answers of a round."""

    def pull_messages(self, ids):
        if any(self.hit(self._pending[message_id]) for message_id in ids):
            raise RuntimeError("power cut")
        return super().pull_messages(ids)


@pytest.mark.parametrize("masked", [True, False])
def test_a_round_under_masks_that_a_crash_interrupted_is_not_asked_again(
    config, masked, monkeypatch
):
    """Nodes answer it no second time: it is charged, everybody left out, and the next one asked."""
    config = replace(config, secure_aggregation=masked, adjacency="zero-out", cohort=40)
    with pytest.raises(RuntimeError, match="power cut"):
        run_training(config, Dies(config, nodes=5, since=3))
    asked = []
    grid = Deployed(config, nodes=5)
    push = grid.push_messages
    monkeypatch.setattr(grid, "push_messages", lambda found: push(kept(asked, found)))
    result = run_training(replace(config, resume=True), grid)
    assert result["rounds"] == config.rounds
    assert [charge.round for charge in charges(config)] == list(range(1, config.rounds + 1))
    rounds = {int(m.metadata.group_id) for m in asked if m.metadata.message_type == "train"}
    assert rounds == set(range(4 if masked else 3, config.rounds + 1))


def kept(asked, found):
    found = list(found)
    asked += found
    return found


def test_a_count_that_nobody_answers(config):
    config = replace(config, strategy="els")
    grid = Deployed(config, fault=f"the owner's policy refuses (secure_only): {SECRET}", since=0)
    found = aborted(config, grid)
    assert found.reason is Reason.REFUSED
    assert read_charges(Path(config.out) / "ledger.jsonl") == []
    assert SECRET not in str(found)


def test_held_out_users_of_a_simulation_that_cannot_be_asked(config, monkeypatch):
    def evaluate(content, host):
        raise MemoryError

    monkeypatch.setitem(answers.ANSWERS, "evaluate", evaluate)
    config = replace(config, test="", seed=3, users=40, cohort=20)
    found = aborted(config, LocalGrid(client_app, 2, config.to_run_config()))
    assert "ran out of memory" in str(found)
