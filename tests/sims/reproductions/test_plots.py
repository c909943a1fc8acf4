"""Plots of local label privacy: every line is there."""

from murmuration.sims.reproductions import ctl_vs_ltc, label_dp_fig1, plots, rr_vs_m


def test_figure_1():
    rows = [
        {"dimension": d, "epsilon": e, "n": n, "estimator": name, "error_mean": 1.0}
        for d in (3, 5)
        for n in (1000, 2000)
        for e, name in (
            (None, label_dp_fig1.NON_PRIVATE),
            (0.1, label_dp_fig1.SGD),
            (1.0, label_dp_fig1.SGD),
            (1.0, label_dp_fig1.MLE),
        )
    ]
    figure = plots.fig1(rows)
    assert len(figure.axes) == 4
    drawn = [[len(line.get_xdata()) for line in axes.lines] for axes in figure.axes]
    assert [sum(points > 0 for points in panel) for panel in drawn] == [2, 3, 2, 3]


def test_settings():
    rows = [
        {"adversary": a, "setting": s, "loss": loss, "n": n, "error_mean": 0.5}
        for a in ctl_vs_ltc.ADVERSARIES
        for s in ("CTL", "LTC")
        for loss in ctl_vs_ltc.LOSSES
        for n in (100, 1000)
    ]
    figure = plots.settings(rows)
    assert len(figure.axes) == 4
    assert all(len(line.get_xdata()) == 2 for axes in figure.axes for line in axes.lines)


def test_against_m():
    rows = [
        {"held": held, "m": m, "estimator": name, "error_mean": 0.5, "error_sd": 0.1}
        for held in ("as many judgements", "as many users")
        for m in (1, 10)
        for name in (rr_vs_m.DEBIASED, rr_vs_m.LIKELIHOOD, "uls", "aup", "maximum likelihood")
    ]
    figure = plots.against_m(rows)
    assert [axes.get_title() for axes in figure.axes] == ["as many judgements", "as many users"]
    assert all(len(axes.containers) == 5 for axes in figure.axes)
