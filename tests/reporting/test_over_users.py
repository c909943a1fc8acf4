import pytest

from murmuration.reporting.over_users import gains, tenths

SPREAD = {
    "knots": (-0.5, 0.0, 0.5),
    "shares": (0.25, 0.25, 0.5),
    "deciles": (-0.5, -0.5, -0.25, 0.0, 0.0, 0.5, 0.5, 0.5, 0.5, 0.5),
    "errors": (0.02, 0, 0, 0, 0, 0, 0, 0, 0, 0.0),
}


def test_ends_and_middle_are_named():
    deciles = [0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.8, 0.9, 0.9, 1.0]
    assert tenths({**SPREAD, "deciles": deciles}) == (
        "20.0 % ± 2.0 for the tenth of users whom it suits least, 75.0 % in the middle, "
        "100.0 % for the tenth whom it suits best"
    )


def test_who_loses_is_named():
    assert gains(SPREAD) == (
        "about 50 % of users gain and 25 % lose; the tenth that loses most -50.0 points ± 2.0, "
        "the tenth that gains most +50.0"
    )


@pytest.mark.parametrize("words", [gains, tenths])
def test_of_nothing_nothing_is_said(words):
    assert words(None) == ""
