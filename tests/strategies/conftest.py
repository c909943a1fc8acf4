"""A small world: real nodes over examples made in a test, a strategy, and checks of both."""

import math
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from agents import FEATURES
from scipy import stats

import murmuration.client.hosting
from murmuration.client.app import app as client_app
from murmuration.client.store import UserStore, share
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.linear.examples import PairExamples
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.grid import step_for
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies import registry
from murmuration.strategies.base import Participants
from murmuration.strategies.protocol.messages import RegistryEntry, TrainRequest
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.spec import RunContext
from murmuration.strategies.steps.optimizers import OptimizerSettings, ServerOptimizer
from murmuration.strategies.uls import Uls, UlsPlan


@dataclass
class World:
    """A strategy with everything around it."""

    grid: LocalGrid
    strategy: Uls
    ledger: Ledger
    log: list[dict]

    def run(self, rounds=1):
        """Run until ``rounds`` are done; the released gradients."""
        released, step = [], self.strategy.optimizer.step

        def watched(round_, gradient_D):
            released.append(np.array(gradient_D))
            step(round_, gradient_D)

        self.strategy.optimizer.step = watched
        self.strategy.start(self.grid, num_rounds=rounds)
        self.strategy.optimizer.step = step
        return released

    def descends(self, mean, examples, rate, rounds, terms):
        """Run; fail unless each round's release is a mean gradient, and θ goes down along it.

        Compared at the θ of each round: over rounds, differences would grow. A release may be off
        by a step of the grid, toward which each vector is rounded, by five standard deviations of
        its noise, and by roundings: a float32 sum of n terms, in any order, is wrong by at most n
        half units in the last place of the largest; of a row, here.

        Args:
            mean: of θ, the mean gradient, by autograd in float64.
            examples: what it is a mean over.
            rate: the largest step's.
            rounds: how many.
            terms: those of the sums that a number of a user's gradient goes through: D of a logit,
                the user's judgements, and some eight of the logistic function.
        """
        optimizer, plan = self.strategy.optimizer, self.strategy.plan
        longest = float(examples.x_RD.norm(dim=1).max())
        off = step_for(plan.clip.norm) + 5 * plan.noise
        off += terms * np.finfo(np.float32).eps / 2 * longest
        for round_ in range(1, rounds + 1):
            theta_D = optimizer.theta.clone().numpy()
            expected_D = mean(optimizer.theta_D).numpy()
            (released_D,) = self.run(round_)
            np.testing.assert_allclose(released_D, expected_D, rtol=0, atol=off)
            moved_D = optimizer.theta.numpy() - theta_D
            step = -rate * optimizer.settings.factor(round_)
            np.testing.assert_allclose(moved_D, step * released_D, rtol=1e-9, atol=1e-15)

    @property
    def left_out(self):
        """The private log's reasons."""
        return [line["left out"] for line in self.log if "left out" in line]


def judgements_like(examples):
    """Judgements with as many rows for each user as the examples have."""
    return Judgements.from_rows(
        {"user_id": f"user {user}", "prompt": "p", "chosen": "a", "rejected": "b"}
        for user, count in enumerate(examples.counts_U.tolist())
        for _ in range(count)
    )


@pytest.fixture
def make_grid(monkeypatch):
    """A function: a LocalGrid whose nodes host shares of the given examples."""

    def make(examples, nodes=1, seed=0):
        judgements, stores = judgements_like(examples), {}
        for place in range(nodes):
            mine = np.array(share(len(judgements.user_ids), place, nodes), dtype=np.int64)
            store = UserStore(judgements.select(mine), place)
            store._examples[FEATURES] = examples.select(mine)
            stores[place] = store
        monkeypatch.setattr(
            murmuration.client.hosting,
            "store_for",
            lambda context: stores[context.node_config["partition-id"]],
        )
        return LocalGrid(client_app, nodes, {} if seed is None else {"seed": seed})

    return make


@pytest.fixture
def make_world(make_grid, tmp_path):
    """A function: a world over examples; ``wrap`` may put a faulty grid around the good one."""

    def make(
        examples,
        *,
        nodes=1,
        seed=0,
        wrap=None,
        strategy=Uls,
        kind=UlsPlan,
        optimizer=None,
        timeout=5.0,
        **plan,
    ):
        users = len(examples.counts_U)
        settings = {"users": users, "rounds": 10, "delta": 1e-5}
        settings |= {"adjacency": Adjacency.ADD_REMOVE, "noise_multiplier": 1.0}
        if issubclass(kind, UlsPlan):
            settings |= {"cohort": max(1, users // 2), "clip": UserClip(1.0)}
        made = kind(**{**settings, **plan})
        source = Randomness(seed)
        grid = make_grid(examples, nodes, seed)
        everybody = Participants.all(Registry.ask(grid, source, features=FEATURES))
        path = tmp_path / f"ledger-{len(list(tmp_path.iterdir()))}.jsonl"
        ledger = Ledger(path, adjacency=made.adjacency, delta=made.delta, budget=None)
        settings = {"kind": "sgd", "rate": 1.0, "rounds": made.rounds, **(optimizer or {})}
        log = []
        return World(
            wrap(grid) if wrap else grid,
            strategy(
                made,
                ledger,
                participants=everybody,
                optimizer=ServerOptimizer(
                    OptimizerSettings(**settings), np.zeros(examples.dimension, np.float32)
                ),
                source=source,
                features=FEATURES,
                log=log.append,
                timeout=timeout,
            ),
            ledger,
            log,
        )

    return make


@pytest.fixture
def make_filter_world(make_grid, tmp_path):
    """A function: a world over examples for a plan and an optimizer that are made already."""

    def make(examples, strategy, plan, optimizer, *, nodes=1, seed=0, wrap=None, budget=None):
        source, grid, log = Randomness(seed), make_grid(examples, nodes, seed or 0), []
        path = tmp_path / f"ledger-{len(list(tmp_path.iterdir()))}.jsonl"
        ledger = Ledger(path, adjacency=plan.adjacency, delta=plan.delta, budget=budget)
        made = strategy(
            plan,
            ledger,
            participants=Participants.all(Registry.ask(grid, Randomness(0), features=FEATURES)),
            optimizer=optimizer,
            source=source,
            features=FEATURES,
            log=log.append,
            timeout=5.0,
        )
        return World(wrap(grid) if wrap else grid, made, ledger, log)

    return make


@pytest.fixture
def brings(monkeypatch):
    """A function: as if other packages brought strategies, by name, each loaded by a function."""
    cached = (registry.strategies, registry._loaded, registry.node_halves, registry.allowable)

    def forget():
        for function in (*cached, registry.solved):
            function.cache_clear()

    def bring(loads):
        points = [SimpleNamespace(name=n, value=f"{n}:IT", load=load) for n, load in loads.items()]
        monkeypatch.setattr(registry, "entry_points", lambda group: points)
        forget()

    yield bring
    monkeypatch.undo()
    forget()


@pytest.fixture
def build_from(tmp_path):
    """A function: what is built from settings for so many users, of whom the last are held out."""

    def make(config, users, *, held_out=0, share=0.0, dimension=9, budget=None):
        whole = Registry.of({1: RegistryEntry(0, np.arange(users, dtype=np.uint64), None)})
        everybody = np.arange(users)
        train, out = everybody[: users - held_out], everybody[users - held_out :]
        context = RunContext(
            strategy=registry.named(config.strategy),
            config=config,
            participants=Participants(whole, train, out, share),
            source=Randomness(0),
            features='{"kind": "hashing"}',
            start_D=np.zeros(dimension, dtype=np.float32),
            log=print,
            grid=LocalGrid(client_app, 1, {}),
            once=lambda name, release: release(),
        )
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        terms = {"adjacency": Adjacency(config.adjacency), "delta": config.delta}
        with Ledger(path, budget=budget, **terms) as ledger:
            return registry.build(context, ledger)

    return make


def ask(node_half, examples, theta_D=None, users_S=None, *, group_size=16, seed=0, **parameters):
    """A node half's sum."""
    users = len(examples.counts_U)
    users_S = np.arange(users) if users_S is None else np.asarray(users_S)
    theta_D = np.zeros(examples.dimension) if theta_D is None else np.asarray(theta_D)
    parameters = {"round": 1, "group-size": group_size, "clip-norm": 1.0, **parameters}
    work = TrainRequest({"theta": theta_D.astype(np.float32)}, parameters, users_S)
    keys_S = np.arange(users, dtype=np.uint64)[users_S] * np.uint64(7919)
    return node_half(examples, work, keys_S, Randomness(seed))["sum"]


def like_everybody(count, dimension=4, length=40.0):
    """A user's rows that all pull the same way, far beyond any clip norm."""
    return torch.full((count, dimension), length / math.sqrt(dimension))


def gather(*users):
    """Examples from users' feature rows, all with y = 1."""
    counts = torch.tensor([len(rows) for rows in users])
    start_U = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
    x_RD = torch.cat(users)
    return PairExamples(x_RD, torch.ones(len(x_RD)), start_U)


def one_vote_each(node_half):
    """However many judgements a user has, they move the sum by no more than the clip norm."""
    light, heavy = like_everybody(1), -like_everybody(1000)
    for group_size in (1, 16, 10_000):
        everyone = ask(node_half, gather(light, heavy, light), group_size=group_size)
        for user in range(3):
            rest_S = [other for other in range(3) if other != user]
            rest = ask(
                node_half, gather(light, heavy, light), users_S=rest_S, group_size=group_size
            )
            moved = float(np.linalg.norm(everyone.astype(float) - rest))
            assert moved <= 1 + 1e-6, f"user {user} moved the sum by {moved:.1f} clip norms"
            assert moved >= 1 - 1e-4, f"user {user} was cut to {moved:.2f} clip norms"


def survives_nan(node_half):
    """A user who is not finite counts as zero, the others as ever."""
    rows, theta_D = like_everybody(3), -0.01 * np.ones(4)
    for bad in (math.nan, math.inf):
        broken = rows.clone()
        broken[1, 2] = bad
        found = ask(node_half, gather(rows, broken, -0.01 * rows), theta_D)
        expected = ask(node_half, gather(rows, -0.01 * rows), theta_D)
        assert np.isfinite(found).all(), "one user's NaN reached the sum"
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def accepts_silence(node_half):
    """Users whose gradients are zero, and no users at all, give a sum of zero."""
    zero = torch.zeros(2, 4)
    assert not ask(node_half, gather(zero, zero)).any()
    assert not ask(node_half, gather(zero), users_S=np.empty(0, dtype=np.int64)).any()


def released_noise(gradient_D, std):
    """A gradient that is nothing but noise has the promised length: not more, not less."""
    score = float(gradient_D @ gradient_D) / std**2
    freedom = len(gradient_D)
    tail = min(stats.chi2.cdf(score, freedom), stats.chi2.sf(score, freedom))
    assert tail > 1e-6, f"noise of {math.sqrt(score / freedom):.2f} times the promised scale"


def fixed_denominator(world, rounds=6):
    """With equal users and hardly any noise, the mean is proportional to the realised cohort."""
    released = world.run(rounds)
    sizes = [line["cohort"] for line in world.log if "cohort" in line]
    assert len(set(sizes)) > 1, "cohorts of one size tell nothing"
    each = [np.linalg.norm(g) / size for g, size in zip(released, sizes, strict=True)]
    assert np.allclose(each, each[0], rtol=1e-4), "divided by something that moves with the cohort"


_CHECKS = SimpleNamespace(
    **{f.__name__: f for f in (
        ask, gather, like_everybody, one_vote_each, survives_nan, accepts_silence, released_noise,
        fixed_denominator,
    )}
)  # fmt: skip


@pytest.fixture(scope="session")
def checks():
    """The functions above."""
    return _CHECKS
