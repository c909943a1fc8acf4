"""When a paper's claim is said to agree."""

import math

import pytest

from murmuration.research.reproductions.alignment.claims import (
    AGREES,
    DISAGREES,
    OPEN,
    Claim,
    half_width,
    mean_interval,
    told,
)


def test_the_interval_is_students():
    # Mean 2, standard deviation 1, three seeds: t at 97.5 % with two degrees of freedom is 4.3027.
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)
    assert half_width([1.0]) == math.inf
    assert mean_interval("x", [1.0]) == {"x_mean": 1.0, "x_interval": None}


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([0.10, 0.11, 0.12], AGREES),
        ([-0.10, -0.11, -0.12], DISAGREES),
        ([0.3, -0.1, 0.1], OPEN),  # a mean above zero is not enough
        ([5.0], OPEN),  # nor is one seed, however far
    ],
)
def test_a_claim_is_judged_by_its_interval(differences, verdict):
    claim = Claim("x", "more", differences)
    assert claim.verdict == verdict
    assert str(claim).startswith(f"{verdict}: more (here by ")


def test_what_does_not_agree_is_told_with_the_rest():
    texts = told(
        [
            Claim("x", "a", [1.0, 1.1]),
            Claim("y", "b", [-1.0, -1.1]),
            Claim("x", "c", [1.0, -1.0]),
        ]
    )
    assert [text.split(":")[0] for text in texts] == ["x", AGREES, OPEN, "y", DISAGREES]
    assert texts[0] == "x: 1 of 2 agree."
    assert texts[3] == "y: 0 of 1 agree."
