"""Corruption before and after the coins: what the rows must show."""

import pytest

from murmuration.research.reproductions.bandits import ctl_vs_ltc


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


def test_remarks(rows):
    texts = ctl_vs_ltc.remarks(rows)
    assert len(texts) == 2
    assert f"{error(rows, 'opposite', 'LTC', 'square'):.2f} under LTC" in texts[0]


def test_the_plot_has_every_line():
    rows = [
        {"adversary": a, "setting": s, "loss": loss, "n": n, "error_mean": 0.5}
        for a in ctl_vs_ltc.ADVERSARIES
        for s in ("CTL", "LTC")
        for loss in ctl_vs_ltc.LOSSES
        for n in (100, 1000)
    ]
    figure = ctl_vs_ltc.plot(rows)
    assert len(figure.axes) == 4
    assert all(len(line.get_xdata()) == 2 for axes in figure.axes for line in axes.lines)
