import json
import math

import pytest
from by_dp_accounting import loss_of
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.composition import composition
from murmuration.privacy.accounting.events import (
    GroupGaussian,
    MixtureGaussian,
    PoissonGaussian,
    PureDp,
    RandomizedLabels,
    Unprotected,
)
from murmuration.privacy.accounting.group_privacy import group_epsilon
from murmuration.privacy.adjacency import Adjacency

poisson = st.builds(
    PoissonGaussian,
    st.floats(0, 1, exclude_min=True),
    st.floats(0, 1e300, exclude_min=True),
)


mixture = st.builds(
    MixtureGaussian,
    st.floats(0, 1e300, exclude_min=True),
    st.integers(1, 10**6),
    st.floats(0, 1, exclude_min=True),
)
pure = st.builds(PureDp, st.floats(0, 500, exclude_min=True))
others = st.sampled_from([Unprotected(), GroupGaussian(2.0, 3, 0.05), RandomizedLabels(2.0, 1e-5)])


@given(poisson | mixture | pure | others)
def test_events_survive_json_bit_for_bit(event):
    text = json.dumps(events.to_json(event), allow_nan=False)
    back = events.from_json(json.loads(text))
    assert back == event
    assert type(back) is type(event)
    assert hash(back) == hash(event)


def test_the_written_form_is_stable():
    assert events.to_json(PoissonGaussian(0.1, 4.0)) == {
        "kind": "poisson-gaussian",
        "probability": 0.1,
        "noise_multiplier": 4.0,
    }
    assert events.to_json(Unprotected()) == {"kind": "unprotected"}


def test_reading_leaves_its_argument_alone():
    data = events.to_json(PoissonGaussian(0.1, 4.0))
    events.from_json(data)
    assert data["kind"] == "poisson-gaussian"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "unknown event kind None; known: .*poisson-gaussian.*, unprotected"),
        ({"kind": "laplace"}, "unknown event kind 'laplace'"),
        ({"kind": ["poisson-gaussian"]}, "unknown event kind"),
        ({"kind": "poisson-gaussian"}, "probability"),
        ({"kind": "poisson-gaussian", "probability": 0.1}, "noise_multiplier"),
        (
            {"kind": "poisson-gaussian", "probability": 0.1, "noise_multiplier": 1.0, "x": 1},
            "event 'poisson-gaussian'.*'x'",
        ),
        ({"kind": "poisson-gaussian", "probability": "0.1", "noise_multiplier": 1.0}, "str"),
        ({"kind": "poisson-gaussian", "probability": None, "noise_multiplier": 1.0}, "NoneType"),
        ({"kind": "unprotected", "probability": 0.1}, "probability"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(data, message):
    with pytest.raises(ValueError, match=message):
        events.from_json(data)


@pytest.mark.parametrize("noise", [0.0, -1.0, math.nan, math.inf])
def test_a_noise_multiplier_out_of_range_is_refused(noise):
    for make in (
        lambda: PoissonGaussian(0.1, noise),
        lambda: MixtureGaussian(noise, 8, 0.01),
        lambda: GroupGaussian(noise, 3, 0.1),
    ):
        with pytest.raises(ValueError, match="noise multiplier must be positive"):
            make()


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, math.nan])
def test_a_probability_out_of_range_is_refused(probability):
    for make in (
        lambda: PoissonGaussian(probability, 1.0),
        lambda: MixtureGaussian(1.0, 8, probability),
        lambda: GroupGaussian(1.0, 2, probability),
    ):
        with pytest.raises(ValueError, match="probability"):
            make()


@pytest.mark.parametrize("size", [0, True, 2.5])
def test_a_group_of_no_whole_size_is_refused(size):
    for kind in (MixtureGaussian, GroupGaussian):
        with pytest.raises(ValueError, match=r"group size|whole number"):
            kind(1.0, size, 0.01)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 501.0])
def test_a_pure_epsilon_out_of_range_is_refused(epsilon):
    with pytest.raises(ValueError, match=r"pure epsilon must be in \(0, 500\]"):
        PureDp(epsilon)
    with pytest.raises(ValueError, match="of labels must be"):
        RandomizedLabels(epsilon, 0.0)


@pytest.mark.parametrize("delta", [1.0, -0.1])
def test_a_delta_of_labels_out_of_range_is_refused(delta):
    with pytest.raises(ValueError, match="of labels must be"):
        RandomizedLabels(1.0, delta)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_loss_of_an_unprotected_release_is_infinite(adjacency):
    loss = loss_of(Unprotected(), adjacency, 1e-3)
    assert loss.get_epsilon_for_delta(1e-5) == math.inf
    assert loss.get_delta_for_epsilon(50.0) == pytest.approx(1.0)


def test_a_pure_part_off_the_grid_is_rounded_up():
    loss = loss_of(PureDp(0.2504), Adjacency.REPLACE, 1e-3)
    assert 0.2504 <= loss.get_epsilon_for_delta(1e-12) <= 0.2511


# Rounds for group privacy: accounted together, and apart from everything else.


TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-6, "interval": 1e-3}


def test_epsilon_is_that_of_the_conversion():
    event = GroupGaussian(2.0, 3, 0.05)
    epsilon = accountant.epsilon([(event, 40)], **TERMS)
    example = [(PoissonGaussian(0.05, 2.0), 40)]
    assert epsilon == group_epsilon(example, group_size=3, **TERMS)
    assert epsilon > 3 * accountant.epsilon(example, **TERMS)


def test_two_kinds_of_rounds_with_one_group_size_are_converted_together():
    charges = [(GroupGaussian(2.0, 3, 0.05), 20), (GroupGaussian(3.0, 3, 0.1), 20)]
    together = accountant.epsilon(charges, **TERMS)
    assert together < sum(accountant.epsilon([charge], **TERMS) for charge in charges)


def test_with_anything_else_epsilons_add_up_and_delta_is_shared():
    grouped, other = (GroupGaussian(2.0, 3, 0.05), 20), (PoissonGaussian(0.1, 2.0), 10)
    half = {**TERMS, "delta": 5e-7}
    expected = accountant.epsilon([grouped], **half) + accountant.epsilon([other], **half)
    assert accountant.epsilon([grouped, other], **TERMS) == pytest.approx(expected, rel=1e-12)
    with_pure = accountant.epsilon([grouped, (PureDp(0.25), 1)], **TERMS)
    assert with_pure == pytest.approx(accountant.epsilon([grouped], **half) + 0.25, abs=2e-3)
    sizes = [(GroupGaussian(2.0, 2, 0.05), 20), grouped]
    apart = sum(accountant.epsilon([charge], **half) for charge in sizes)
    assert accountant.epsilon(sizes, **TERMS) == pytest.approx(apart, rel=1e-12)


def test_never_as_a_single_rounds_loss():
    with pytest.raises(ValueError, match="converts all rounds together"):
        composition([(GroupGaussian(2.0, 3, 0.05), 4)], adjacency=Adjacency.ADD_REMOVE)


def test_a_diverging_conversion_is_infinite():
    assert math.isinf(accountant.epsilon([(GroupGaussian(2.0, 200, 0.5), 500)], **TERMS))


# The event of randomized labels: what a user's labels cost, alone and together.


def cost(event, delta=1e-6):
    return accountant.epsilon([(event, 1)], adjacency=Adjacency.REPLACE_LABELS, delta=delta)


@pytest.mark.parametrize("epsilon", [0.1, 3.0, 8.0])
def test_a_users_labels_cost_their_epsilon_and_no_more(epsilon):
    assert 0.999 * epsilon <= cost(RandomizedLabels(epsilon)) <= epsilon
    assert cost(RandomizedLabels(epsilon, delta=1e-6)) == pytest.approx(epsilon, rel=1e-6)


def test_a_delta_of_labels_is_not_free():
    assert cost(RandomizedLabels(1.0, delta=1e-5), delta=1e-6) == math.inf


@pytest.mark.parametrize("promised", [1 / 3, 0.3, 2.70005, 1e-5])
@pytest.mark.parametrize("label_delta", [0.0, 1e-5])
def test_one_promise_costs_no_more_than_was_promised(promised, label_delta):
    def cost(delta, times=1):
        events = {RandomizedLabels(promised, label_delta): times}
        labels = Adjacency.REPLACE_LABELS
        return accountant.epsilon(events.items(), adjacency=labels, delta=delta)

    assert promised - 2e-4 < cost(1e-5) <= promised
    if label_delta:
        assert cost(1e-5 * (1 - 1e-9)) == math.inf
    assert cost(2e-5, times=2) <= 2 * promised
