"""Corruption before and after the coins: what the rows must show."""

import pytest

from murmuration.sims.reproductions import ctl_vs_ltc


@pytest.fixture(scope="module")
def rows():
    return ctl_vs_ltc.ctl_ltc(sizes=(6000,), repetitions=3)


def error(rows, adversary, setting, loss):
    (row,) = [
        row
        for row in rows
        if (row["adversary"], row["setting"], row["loss"]) == (adversary, setting, loss)
    ]
    return row["error_mean"]


@pytest.mark.parametrize("adversary", ctl_vs_ltc.ADVERSARIES)
@pytest.mark.parametrize("loss", ["square", "log, de-biased"])
def test_corruption_after_the_coins_is_worse(rows, adversary, loss):
    before, after = error(rows, adversary, "CTL", loss), error(rows, adversary, "LTC", loss)
    assert after > 1.5 * before
    assert before < error(rows, adversary, "both", loss) < after


@pytest.mark.parametrize("adversary", ctl_vs_ltc.ADVERSARIES)
@pytest.mark.parametrize("setting", ["coins only", "CTL", "LTC", "both"])
def test_a_loss_that_knows_nothing_of_the_coins_is_worst(rows, adversary, setting):
    plain = error(rows, adversary, setting, "log, plain")
    assert plain > error(rows, adversary, setting, "square")


def test_without_corruption_the_adversary_is_nobody(rows):
    for loss in ctl_vs_ltc.LOSSES:
        first, second = (error(rows, name, "coins only", loss) for name in ctl_vs_ltc.ADVERSARIES)
        assert first == second


@pytest.mark.slow
def test_remarks_and_progress(rows):
    texts = ctl_vs_ltc.remarks(rows)
    assert len(texts) == 2
    assert f"{error(rows, 'opposite', 'LTC', 'square'):.2f} under LTC" in texts[0]
    shares = []
    ctl_vs_ltc.ctl_ltc(sizes=(50,), repetitions=2, on_progress=shares.append)
    assert shares == [0.5, 1.0]
