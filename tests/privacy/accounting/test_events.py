import json
import math

import pytest
from by_dp_accounting import loss_of
from hypothesis import given
from hypothesis import strategies as st

from murmuration.privacy.accounting import events
from murmuration.privacy.accounting.events import (
    MixtureGaussian,
    PoissonGaussian,
    PureDp,
    Unprotected,
)
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


@given(poisson | mixture | pure | st.just(Unprotected()))
def test_events_survive_json_bit_for_bit(event: events.Event) -> None:
    text = json.dumps(events.to_json(event), allow_nan=False)
    back = events.from_json(json.loads(text))
    assert back == event
    assert type(back) is type(event)
    assert hash(back) == hash(event)


def test_the_written_form_is_stable() -> None:
    assert events.to_json(PoissonGaussian(0.1, 4.0)) == {
        "kind": "poisson-gaussian",
        "probability": 0.1,
        "noise_multiplier": 4.0,
    }
    assert events.to_json(Unprotected()) == {"kind": "unprotected"}


def test_reading_leaves_its_argument_alone() -> None:
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
def test_what_cannot_be_read_is_refused_by_name(data: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        events.from_json(data)


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, math.nan])
def test_a_probability_out_of_range_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=r"probability must be in \(0, 1\]"):
        PoissonGaussian(probability, 1.0)


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_a_noise_multiplier_out_of_range_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match="noise multiplier must be positive"):
        PoissonGaussian(0.1, sigma)


def test_events_are_values() -> None:
    event = PoissonGaussian(0.1, 4.0)
    with pytest.raises(AttributeError):
        event.noise_multiplier = 5.0  # type: ignore[misc]
    assert event == PoissonGaussian(0.1, 4.0)
    assert event != PoissonGaussian(0.1, 4.1)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_loss_of_an_unprotected_release_is_infinite(adjacency: Adjacency) -> None:
    loss = loss_of(Unprotected(), adjacency, 1e-3)
    assert loss.get_epsilon_for_delta(1e-5) == math.inf
    assert loss.get_delta_for_epsilon(50.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("adjacency", "moved"), [(Adjacency.ADD_REMOVE, 1.0), (Adjacency.REPLACE, 2.0)]
)
def test_without_sampling_the_loss_is_the_gaussians_own(adjacency: Adjacency, moved: float) -> None:
    sigma, epsilon = 3.0, 1.0
    mu = moved / sigma

    def cdf(x: float) -> float:
        return 0.5 * math.erfc(-x / math.sqrt(2))

    # Balle and Wang 2018, Theorem 8.
    delta = cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)
    loss = loss_of(PoissonGaussian(1.0, sigma), adjacency, 1e-4)
    assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-3)
    assert loss.get_delta_for_epsilon(epsilon) >= delta * (1 - 1e-9)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_a_pure_part_adds_its_epsilon_every_time(adjacency: Adjacency) -> None:
    for times in (1, 2, 7):
        loss = loss_of(PureDp(0.25), adjacency, 1e-3).self_compose(times)
        found = loss.get_epsilon_for_delta(1e-12)  # the library itself gives up 1e-15
        assert found == pytest.approx(0.25 * times, rel=1e-6)
    once = loss_of(PureDp(0.25), adjacency, 1e-3)
    # Two outcomes: at epsilon 0, delta is their total variation.
    assert once.get_delta_for_epsilon(0.0) == pytest.approx(math.tanh(0.125), rel=1e-6)


def test_a_pure_part_off_the_grid_is_rounded_up() -> None:
    loss = loss_of(PureDp(0.2504), Adjacency.REPLACE, 1e-3)
    assert 0.2504 <= loss.get_epsilon_for_delta(1e-12) <= 0.2511


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 501.0])
def test_a_pure_epsilon_out_of_range_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"pure epsilon must be in \(0, 500\]"):
        PureDp(value)
