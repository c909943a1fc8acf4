"""What all sum-based strategies share: cohorts, faulty nodes, evaluation, the loop.

Faults are put between the nodes and the server by a grid that wraps the real one.
"""

import numpy as np
import pytest
import torch
from agents import FEATURES
from failing import Watched
from flwr.app import Array, ArrayRecord, Error, Message

from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.discrete_gaussian import DiscreteNoise
from murmuration.privacy.mechanisms.tally import STEPS, Tally
from murmuration.strategies.base import Participants, SteppedStrategy
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.availability import Reason, RunAborted
from murmuration.strategies.steps.optimizers import SolvedModel
from murmuration.strategies.sums import SumStrategy
from murmuration.strategies.uls import Uls

BAD = 2  # the node at fault
QUIET = {"noise_multiplier": 1e-9, "clip": UserClip(0.5), "group_size": 100}


class FaultyGrid(Watched):
    """Passes everything on, but node ``BAD``'s training replies go through ``fault``."""

    def __init__(self, grid, fault):
        super().__init__(grid)
        self.fault = fault

    def pull_messages(self, message_ids):
        for reply in self.grid.pull_messages(message_ids):
            if reply.metadata.src_node_id == BAD and reply.metadata.message_type == "train":
                yield from self.fault(reply)
            else:
                yield reply


def replace_sum(change):
    """A fault that sends another sum."""

    def fault(reply):
        sum_D = reply.content.array_records["sums"]["sum"].numpy()
        reply.content.array_records["sums"] = ArrayRecord({"sum": Array(change(sum_D))})
        yield reply

    return fault


def raises(reply):
    error = Message(Error(2, "KeyError: 'alice'"), reply_to=reply)
    error.metadata.__dict__.update(reply.metadata.__dict__)
    yield error


def late(reply):
    return iter(())


def unasked(reply):
    reply.metadata.__dict__["_reply_to_message_id"] = "another message"
    yield reply


def undecodable(reply):
    good = reply.content.array_records["sums"]["sum"]
    broken = Array(dtype=good.dtype, shape=good.shape, stype=good.stype, data=b"\x93NUMPY")
    reply.content.array_records["sums"] = ArrayRecord({"sum": broken})
    yield reply


def with_nan(sum_D):
    sum_D = sum_D.copy()
    sum_D[0] = np.nan
    return sum_D


FAULTS = {
    "raises": (raises, "KeyError: 'alice'"),
    "late": (late, "no reply in time"),
    "unasked": (unasked, "no reply in time"),
    "undecodable": (undecodable, "another type or length"),
    "wrong shape": (replace_sum(lambda s: s[:-1]), "asked for"),
    "NaN": (replace_sum(with_nan), "cannot produce"),
    "huge": (replace_sum(lambda s: s / np.linalg.norm(s) * 0.51 * 10), "cannot produce"),
}


#: Against sums on a grid.
OFF_GRID = {
    "off the grid": (replace_sum(lambda s: s + np.r_[1e-12, np.zeros(len(s) - 1)]), "on the grid"),
    "scaled": (replace_sum(lambda s: s * 0.7), "on the grid"),
    "huge": (replace_sum(lambda s: np.full(len(s), 2.0**40)), "cannot produce"),
}


@pytest.fixture
def examples(make_examples):
    return make_examples([1, 3, 9, 2, 40, 1, 1, 2, 5, 1] * 3)


@pytest.mark.parametrize("name", FAULTS)
def test_a_faulty_node_is_left_out_and_the_round_goes_on(make_world, examples, name):
    fault, reason = FAULTS[name]
    settings = {"nodes": 3, "cohort": 30, **QUIET}  # q = 1: who is in does not vary
    world = make_world(examples, wrap=lambda grid: FaultyGrid(grid, fault), timeout=0.2, **settings)
    (released,) = world.run(1)
    assert len(world.left_out) == 1
    assert reason in world.left_out[0]
    assert world.log[-1]["node"] == BAD
    assert world.ledger.spent() == {world.strategy.plan.mechanism.event: 1}, "not charged"
    # The others' sum over the nominal cohort: as if the node's users had sent zeros.
    others = examples.select(np.r_[0:10, 20:30])
    silent = make_world(others, cohort=20, **QUIET)
    (expected,) = silent.run(1)
    np.testing.assert_allclose(released, expected * 20 / 30, atol=1e-6)
    assert world.strategy.stopped is None
    assert world.strategy.rounds_done == 1


@pytest.mark.parametrize("name", OFF_GRID)
def test_a_sum_off_the_grid_is_left_out_before_the_charge(make_world, examples, name):
    """It is no sum of vectors on the grid, and discrete noise cannot be added to it."""
    fault, reason = OFF_GRID[name]
    world = make_world(
        examples,
        wrap=lambda grid: FaultyGrid(grid, fault),
        nodes=3,
        cohort=30,
        clip=UserClip(0.5),
        discrete=DiscreteNoise(5),
        seed=None,
    )
    (released,) = world.run(1)
    assert np.isfinite(released).all()
    (left_out,) = world.left_out
    assert reason in left_out
    assert len(world.ledger.charges) == 1


def test_sums_that_are_too_large_only_together_are_left_out(make_world, examples):
    """Each is in the exact range, by a node that hosts ever so many; both are not."""
    world = make_world(examples, nodes=3, cohort=30, clip=UserClip(0.5), seed=None)
    strategy, step, seen = world.strategy, world.strategy.plan.clip.step, []
    most = np.full(5, (2.0**52 - 1.0) * step)
    fake, pull = replace_sum(lambda sum_D: most), world.grid.pull_messages
    world.grid.pull_messages = lambda ids: (r for reply in pull(ids) for r in fake(reply))
    strategy.is_valid = lambda sums, users: True
    strategy.update = lambda round_, totals: seen.append(totals["sum"]) or 0.0
    strategy.start(world.grid, num_rounds=1)
    assert seen[0].tolist() == most.tolist()
    assert len(world.left_out) == 2


def test_who_is_online_is_decided_before_the_coins(make_world, examples):
    """Too few: nothing is drawn, asked, charged or logged. Enough: who answers decides nothing."""
    world = make_world(examples, nodes=4, wrap=Watched, cohort=15)
    strategy, drawn = world.strategy, []
    invited = strategy.sample_cohort
    strategy.sample_cohort = lambda round_: drawn.append("coins") or invited(round_)
    strategy.min_nodes, strategy.timeout = 0.6, -1.0
    world.grid.get_node_ids = lambda: [1, 3]
    with pytest.raises(RunAborted) as caught:
        world.run(1)
    assert caught.value.reason is Reason.FEW_NODES
    assert drawn == world.grid.sent == world.log == world.ledger.charges == []
    world.grid.get_node_ids = lambda: drawn.append("looked") or [1, 3, 4]
    strategy.timeout = 5.0
    world.run(1)
    assert drawn == ["looked", "coins"]


def test_three_rounds_in_a_row_with_too_few_answers_end_the_run(make_world, examples):
    """Users count, not nodes: node 1 of 3 hosts a third of them."""
    world = make_world(examples, nodes=3, cohort=30, seed=None)
    pull = world.grid.pull_messages

    def answers(ids):
        round_ = world.strategy.rounds_done + 1
        nodes = 3 if round_ == 2 else 1
        for reply in pull(ids):
            if reply.metadata.src_node_id <= nodes:
                yield reply

    world.grid.pull_messages = answers
    world.strategy.timeout = 0.02
    with pytest.raises(RunAborted) as caught:
        world.run(9)
    assert caught.value.reason is Reason.FEW_ANSWERS
    assert world.strategy.rounds_done == len(world.ledger.charges) == 5
    assert world.strategy.unanswered == 0
    assert caught.value.private["rounds"][0]["users counted"] == 10


@pytest.mark.parametrize("seed", [0, None])
def test_nobody_answers_and_the_round_is_charged_and_the_run_ends(
    make_world, make_examples, checks, seed
):
    world = make_world(make_examples([2] * 6, dimension=2000), nodes=3, cohort=5, seed=seed)
    world.grid.pull_messages = lambda ids: iter(())
    world.strategy.timeout = 0.05
    released, step, ended = [], world.strategy.optimizer.step, []
    world.strategy.optimizer.step = lambda t, gradient_D: (
        released.append(gradient_D) or step(t, gradient_D)
    )
    with pytest.raises(RunAborted) as caught:
        world.strategy.start(world.grid, num_rounds=9, on_round=ended.append)
    assert caught.value.reason is Reason.NO_ANSWERS
    assert (len(released), ended, world.strategy.rounds_done) == (1, [1], 1)
    checks.released_noise(released[0], 1 / 5)
    assert len(world.ledger.charges) == 1
    assert world.strategy.unanswered == 1
    asked = next(line["cohort"] for line in world.log if "cohort" in line)
    assert caught.value.private["users asked"] == asked
    assert str(asked) not in str(caught.value)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_second_reply_does_not_count(make_world, examples, batches):
    def twice(reply):
        yield reply
        yield reply

    settings = {"nodes": 3, "cohort": 30, **QUIET}
    (honest,) = make_world(examples, **settings).run(1)
    world = make_world(examples, wrap=lambda grid: FaultyGrid(grid, twice), **settings)
    if batches == 2:  # straight to the strategy, past the exchange that drops it already
        outgoing = world.strategy.configure_train(
            1, messages.model_record(np.zeros(5)), None, world.grid
        )
        replies = world.grid.pull_messages(world.grid.push_messages(outgoing))
        found = []
        world.strategy.optimizer.step = lambda round_, gradient_D: found.append(gradient_D)
        world.strategy.aggregate_train(1, replies)
        assert world.left_out == ["a second reply, or one that was not asked for"]
    else:
        found = world.run(1)
        assert world.left_out == []
    np.testing.assert_allclose(found[0], honest, atol=1e-8)


def test_users_are_named_once_and_only_those_who_train(make_world, examples):
    world = make_world(examples, nodes=4, wrap=Watched, cohort=15)
    registry = world.strategy.participants.registry
    train = np.array([0, 3, 4, 11, 12, 13, 25])
    world.strategy.participants = Participants(registry, train, np.array([1, 2]))
    world.strategy.start(world.grid, num_rounds=10)
    seen = set()
    for message in world.grid.sent:
        names_S = messages.UserSelection.of(message.content).names_S
        users = np.flatnonzero(np.isin(registry.keys_N, names_S)).tolist()
        first, after = registry.start[registry.nodes.index(message.metadata.dst_node_id) :][:2]
        assert all(first <= user < after for user in users)
        assert len(users) == len(names_S)
        assert len(users) > 0
        assert len(set(users)) == len(users)
        seen |= set(users)
    assert seen == set(train.tolist())


def test_nodes_are_told_public_parameters_only(make_world, examples):
    world = make_world(examples, wrap=Watched)
    world.run(1)
    (message,) = world.grid.sent
    content = message.content
    assert sorted(content) == ["cohort", "model", "parameters"]
    assert dict(content.config_records["parameters"]) == {
        "strategy": "uls",
        "round": 1,
        "features": FEATURES,
        "model": "btl",
        "clip-norm": 1.0,
        "group-size": 16,
        "shared-passes": False,
    }


def test_an_empty_cohort_is_released_and_charged(make_world, make_examples, checks):
    world = make_world(make_examples([1] * 40, dimension=2000), cohort=1, noise_multiplier=2.0)
    world.strategy.sampler = type("Nobody", (), {"draw": lambda *_: np.empty(0, dtype=np.int64)})()
    (released,) = world.run(1)
    checks.released_noise(released, 2.0)
    assert len(world.ledger.charges) == 1


def test_budget_refuses_a_round_and_the_model_stays(make_world, examples, tmp_path):
    world = make_world(examples, rounds=3, noise_multiplier=10.0)
    plan = world.strategy.plan
    budget = plan.epsilon() * 1.0001
    terms = {"adjacency": plan.adjacency, "delta": plan.delta, "budget": budget}
    with Ledger(tmp_path / "tight.jsonl", **terms) as ledger:
        ledger.clear(plan.charges)
        world.strategy.ledger = ledger
        called = []
        world.strategy.start(world.grid, num_rounds=9, on_round=called.append)
        assert called == [1, 2, 3]
        assert world.strategy.rounds_done == 3
        assert world.strategy.stopped.startswith("stopped before round 4: ")
        assert len(ledger.charges) == 3
        theta_D = world.strategy.optimizer.theta_D
        world.strategy.start(world.grid, num_rounds=9)
        assert world.strategy.optimizer.theta_D.tolist() == theta_D.tolist()


def test_evaluation_is_that_of_one_table(make_world, examples):
    world = make_world(examples, nodes=7)
    out = np.array([0, 4, 9, 17, 29])
    registry = world.strategy.participants.registry
    world.strategy.participants = Participants(registry, np.arange(1, 3), out)
    theta_D = np.array([1.0, -0.5, 0.2, 0.1, 0.0], dtype=np.float32)
    sum_F = world.strategy.tally(world.grid, theta_D, Tally())
    expected = examples.select(out).accuracy(theta_D)
    assert sum_F.sum() == expected.users * STEPS
    assert Tally().read(sum_F).accuracy == pytest.approx(expected.by_user, abs=1e-5)
    assert world.strategy.aggregate_evaluate(1, []) is None


def test_evaluation_without_an_answer(make_world, examples):
    world = make_world(examples, nodes=3)
    nobody = world.strategy.tally(world.grid, np.zeros(5), Tally())
    assert not nobody.any()  # nobody is held out
    registry = world.strategy.participants.registry
    world.strategy.participants = Participants(registry, np.arange(5), np.array([15]))
    grid = Watched(world.grid)
    grid.pull_messages = lambda ids: raises(next(world.grid.pull_messages(ids)))
    assert not world.strategy.tally(grid, np.zeros(5), Tally()).any()
    assert "alice" in world.log[-1]["not evaluated"]


def test_a_tally_of_more_than_were_asked_is_left_out(make_world, examples):
    told_F = 3.0 * STEPS * np.eye(Tally().figures)[0]
    world = make_world(examples, nodes=3)
    registry = world.strategy.participants.registry
    bounds = registry.start
    out = np.arange(bounds[1] - 2, bounds[2])  # two with the first node, all with the second
    world.strategy.participants = Participants(registry, np.arange(3), out[2:])
    rest_F = world.strategy.tally(world.grid, np.ones(5), Tally())
    assert rest_F.any()
    world.strategy.participants = Participants(registry, np.arange(3), out)

    class Liar:
        def __getattr__(self, name):
            return getattr(world.grid, name)

        def pull_messages(self, message_ids):
            for reply in world.grid.pull_messages(message_ids):
                if reply.metadata.src_node_id == registry.nodes[0]:
                    reply.content = messages.sums_reply({messages.TALLY: told_F})
                yield reply

    got_F = world.strategy.tally(Liar(), np.ones(5), Tally())
    assert (got_F == rest_F).all()
    assert world.log[-1]["not evaluated"]


def test_flowers_own_loop_arguments(make_world, examples):
    world = make_world(examples)
    seen = []

    def evaluate(round_, arrays):
        seen.append((round_, arrays["theta"].numpy().tolist()))

    result = world.strategy.start(world.grid, num_rounds=3, evaluate_fn=evaluate)
    assert [round_ for round_, _ in seen] == [1, 2, 3]
    assert seen[-1][1] == world.strategy.optimizer.theta_D.tolist()
    assert result.arrays["theta"].numpy().tolist() == world.strategy.optimizer.result_D.tolist()
    assert isinstance(world.strategy, Uls)


def test_a_round_that_is_run_again_meets_the_same_coins(make_world, examples):
    a, b = (make_world(examples, seed=4).strategy for _ in range(2))
    assert [a.sample_cohort(t).tolist() for t in (1, 2, 1)] == [
        b.sample_cohort(t).tolist() for t in (1, 2, 1)
    ]
    assert a.sample_cohort(1).tolist() != a.sample_cohort(2).tolist()
    fresh = make_world(examples, seed=None).strategy
    assert fresh.sample_cohort(1).tolist() != fresh.sample_cohort(1).tolist()


def test_nodes_take_gradients_at_the_current_iterate(make_world, examples):
    world = make_world(examples, wrap=Watched)
    models = [np.zeros(5)]
    world.strategy.start(
        world.grid, num_rounds=3, on_round=lambda _: models.append(world.strategy.optimizer.theta_D)
    )
    sent = [messages.read_work(m.content).arrays["theta"] for m in world.grid.sent]
    assert torch.equal(torch.tensor(np.array(sent)), torch.tensor(np.array(models[:3])).float())


def test_nobody_waits_twice_for_a_node_that_is_gone(make_world, examples):
    gone = [True]

    def fault(reply):
        if not gone:
            yield reply

    world = make_world(examples, nodes=3, cohort=29, wrap=lambda g: FaultyGrid(g, fault))
    world.strategy.timeout = 0.1
    world.run(1)
    assert world.strategy.slow == {BAD}
    world.strategy.timeout = 36_000.0  # which no test waits for
    world.run(2)
    assert world.strategy.slow == {BAD}
    gone.clear()
    world.run(3)
    assert not world.strategy.slow  # who answers is waited for again


def test_before_each_round_but_the_first(make_world, examples):
    world, seen = make_world(examples), []
    world.strategy.start(
        world.grid,
        num_rounds=3,
        before_round=lambda round_: seen.append(("before", round_)),
        on_round=lambda round_: seen.append(("after", round_)),
    )
    assert seen == [
        ("after", 1),
        ("before", 2),
        ("after", 2),
        ("before", 3),
        ("after", 3),
    ]


def test_a_strategy_that_says_not_how_it_learns_is_never_built(make_world, examples):
    class NoGradient(SumStrategy, SteppedStrategy):
        name = "uls"

    class NoUpdate(SumStrategy):
        name = "uls"

    for strategy, lacking in ((NoGradient, "gradient"), (NoUpdate, "update")):
        with pytest.raises(TypeError, match=f"abstract method '?{lacking}"):
            make_world(examples, strategy=strategy)


def test_steps_and_solutions_are_not_mixed_up(make_world, examples):
    class Solving(Uls):
        solves = True

    with pytest.raises(TypeError, match="Solving needs a SolvedModel"):
        make_world(examples, strategy=Solving)
    made = make_world(examples).strategy
    with pytest.raises(TypeError, match="Uls needs a ServerOptimizer"):
        Uls(
            made.plan,
            made.ledger,
            participants=made.participants,
            optimizer=SolvedModel(4),
            source=made.source,
            features="",
            log=print,
        )
