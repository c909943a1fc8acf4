"""What hostile users do to a model: the attacks, the bound, and what is said of it."""

import math
from dataclasses import replace

import numpy as np
import pytest

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.research.reproductions import hostile_users
from murmuration.research.reproductions.btl import Population
from murmuration.research.reproductions.hostile_users import (
    AGAINST,
    FLIPPED,
    SUM,
    Case,
    World,
    bound,
    measured,
    trained,
)
from murmuration.strategies.uls import UlsPlan

USERS = 300


@pytest.fixture(scope="module")
def world():
    people = Population.draw(0, users=USERS + 100, each=6, dimension=10).examples
    plan = UlsPlan(
        users=USERS,
        cohort=150,
        rounds=40,
        delta=1e-5,
        adjacency=Adjacency.ZERO_OUT,
        noise_multiplier=0.5,
        clip=UserClip(0.1),
    )
    train, test = people.select(np.arange(USERS)), people.select(np.arange(USERS, USERS + 100))
    return World(train, test, plan)


@pytest.fixture(scope="module")
def rows(world):
    return measured(world, shares=(0.1, 0.4), buckets=(5,), bucketed=(0.4,), seeds=2)


def one(rows, aggregate=SUM, attack=None, share=0.0):
    wanted = aggregate, attack, share
    (row,) = [r for r in rows if (r["aggregate"], r["attack"], r["share"]) == wanted]
    return row


def test_every_case_has_a_row(rows):
    assert len(rows) == 1 + 2 * 2 + 2 + 2
    assert all(0.0 <= row["accuracy_mean"] <= 1.0 for row in rows)
    assert one(rows)["moved"] == 0.0


def test_more_hostile_users_do_more(rows):
    honest = one(rows)
    assert honest["accuracy_mean"] > 0.6
    for attack in (FLIPPED, AGAINST):
        few, many = (one(rows, attack=attack, share=share) for share in (0.1, 0.4))
        assert 0.0 < few["moved"] < many["moved"] <= many["at_most"]
        assert many["accuracy_mean"] < honest["accuracy_mean"] - 0.02
    assert one(rows, attack=AGAINST, share=0.4)["accuracy_mean"] < 0.5


def test_hostile_users_by_themselves_stay_within_the_bound(world):
    """Where the others say nothing at all, and noise is the same."""
    nothing = replace(world.examples, x_RD=world.examples.x_RD * 0.0)
    silent = World(nothing, world.test, world.plan)
    direction_D = np.ones(10)
    alone = trained(silent, Case(), 3)
    for share in (0.05, 0.3):
        moved_D = trained(silent, Case(share, AGAINST), 3, direction_D) - alone
        most = bound(world.plan, share) / 2.0  # zero in the place of which a vector stands
        assert 0.4 * most < np.linalg.norm(moved_D) < 1.2 * most  # K_t is f·M on average
        assert moved_D / np.linalg.norm(moved_D) == pytest.approx(
            -direction_D / math.sqrt(10), 1e-3
        )


def test_a_user_is_in_one_bucket(world, monkeypatch):
    """Which is why all noisy sums together cost what one does."""
    asked = []
    real = hostile_users.client_update

    def seen(examples, work, keys_S, source):
        asked.append((int(work.number("round")), work.users_S.tolist()))
        return real(examples, work, keys_S, source)

    monkeypatch.setattr(hostile_users, "client_update", seen)
    trained(world, Case(0.2, FLIPPED, 5), 0)
    for round_ in (1, 40):
        users = [user for when, mine in asked if when == round_ for user in mine]
        assert len(users) == len(set(users)) > 100


def test_what_is_said_is_what_the_rows_say(rows, world):
    said = "\n".join(hostile_users.remarks(rows, world))
    assert "θ never moved further" in said
    assert "median of 5 buckets" in said
    worse = [{**row, "moved": 1e9} for row in rows]
    assert "MOVED" in "\n".join(hostile_users.remarks(worse, world))
