"""Plots: what is drawn, read back from the figures, and that they come out as images."""

import io

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from murmuration.reporting.plots import DARK, LIGHT, accuracy_plot, noise_plot, users_plot


@pytest.fixture
def drawn(monkeypatch):
    """The figures that were turned into images."""
    figures, save = [], Figure.savefig

    def keep(figure, *where, **more):
        figures.append(figure)
        save(figure, *where, **more)

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


def image(png):
    return matplotlib.image.imread(io.BytesIO(png), format="png")


def lines(axes):
    """Label → y values of the lines with a label of their own."""
    return {
        line.get_label(): np.asarray(line.get_ydata(), dtype=float)
        for line in axes.get_lines()
        if not str(line.get_label()).startswith("_")
    }


def longest(axes):
    return max((np.asarray(line.get_ydata()) for line in axes.get_lines()), key=len)


def words(axes):
    return [text.get_text() for text in axes.texts]


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_any_number_of_rounds(make_result, make_metrics, private, rounds):
    result = make_result(private, rounds=rounds)
    metrics = make_metrics(result)
    for plot in (accuracy_plot, noise_plot):
        assert image(plot(result, metrics)).shape[1] == 1160


@pytest.mark.parametrize("chance", [0.5, 0.25])
def test_guessing_has_a_line_where_it_belongs(make_result, make_metrics, drawn, chance):
    result = make_result(heldout_chance=chance)
    accuracy_plot(result, make_metrics(result))
    top = drawn[0].axes[0]
    assert "guessing" in words(top)
    assert any(np.allclose(line.get_ydata(), chance) for line in top.get_lines())
    assert top.get_ylim()[0] < chance < top.get_ylim()[1]


def test_accuracy_and_epsilon_over_rounds(make_result, make_metrics, drawn):
    result = make_result()
    accuracy_plot(result, make_metrics(result))
    top, bottom = drawn[0].axes
    assert longest(top)[-1] == pytest.approx(0.74) and len(longest(top)) == 20
    assert longest(bottom)[-1] == pytest.approx(2.9914)
    assert "budget 3" in words(bottom)
    assert bottom.get_ylim()[0] == 0 and bottom.get_ylim()[1] > 3
    assert top.get_ylim()[0] < 0.5 < 0.74 < top.get_ylim()[1]


def test_final_accuracy_where_there_is_no_curve(make_result, make_metrics, drawn):
    result = make_result(test_is_public=False)
    accuracy_plot(result, make_metrics(result, accuracy=False))
    assert "after the last round: 74.3 %" in words(drawn[0].axes[0])
    accuracy_plot({**result, "heldout_accuracy": None}, make_metrics(result, accuracy=False))
    assert words(drawn[1].axes[0]) == ["not measured"]


def test_worse_than_guessing_is_not_cut_off(make_result, make_metrics, drawn):
    result = make_result(rounds=1)
    accuracy_plot(result, [{**make_metrics(result)[0], "heldout_accuracy": 0.2}])
    assert drawn[0].axes[0].get_ylim()[0] < 0.2


def test_no_epsilon_without_privacy(make_result, make_metrics, drawn):
    result = make_result(private=False)
    accuracy_plot(result, make_metrics(result))
    noise_plot(result, make_metrics(result))
    assert len(drawn[0].axes) == 1
    assert set(lines(drawn[1].axes[0])) == {"update"}


def test_signal_is_found_under_larger_noise(make_result, make_metrics, drawn):
    result = make_result(rounds=2000)
    noise_plot(result, make_metrics(result, noise=0.06, signal=0.02))
    found = lines(drawn[0].axes[0])
    signal = found["signal (estimate)"]
    assert np.median(signal[np.isfinite(signal)]) == pytest.approx(0.02, rel=0.03)
    assert np.isfinite(signal).mean() > 0.95
    assert found["noise (expected)"] == pytest.approx(0.06)


def test_no_signal_is_seen_in_noise_alone(make_result, make_metrics, drawn):
    result = make_result(rounds=2000)
    noise_plot(result, make_metrics(result, noise=0.06, signal=0.0))
    assert np.isfinite(lines(drawn[0].axes[0])["signal (estimate)"]).mean() < 0.1


def test_logarithmic_only_for_a_wide_span(make_result, make_metrics, drawn):
    result = make_result()
    noise_plot(result, make_metrics(result, noise=0.01, signal=0.02))
    noise_plot(result, make_metrics(result, noise=0.001, signal=0.02))
    assert [figure.axes[0].get_yscale() for figure in drawn] == ["linear", "log"]


def test_long_runs_are_thinned_and_keep_their_ends(make_result, make_metrics, drawn):
    result = make_result(rounds=10_000)
    metrics = make_metrics(result)
    accuracy_plot(result, metrics)
    noise_plot(result, metrics)
    for figure in drawn:
        for line in figure.axes[-1].get_lines():
            assert len(line.get_xdata()) <= 500
    assert longest(drawn[0].axes[1])[[0, -1]] == pytest.approx([2.9914 / 100, 2.9914])


def test_paper_is_light_or_dark(make_result, make_metrics):
    result = make_result(rounds=3)
    light = image(noise_plot(result, make_metrics(result), LIGHT))
    dark = image(noise_plot(result, make_metrics(result), DARK))
    assert light[0, 0, :3].min() == 1.0 and dark[0, 0, :3].max() < 0.25


def test_how_users_differ(make_result, drawn):
    spread = {"knots": [0.0, 0.5, 1.0], "shares": [0.1, 0.2, 0.7]}
    spread |= {"deciles": [0.0, 0.5, 0.5, *7 * [1.0]], "errors": 10 * [0.0]}
    result = make_result(accuracy_over_users=spread)
    for palette in (LIGHT, DARK):
        assert image(users_plot(result, [], palette)).shape[1] == 1160
    (axes,) = drawn[0].axes
    assert [bar.get_height() for bar in axes.patches] == [0.1, 0.2, 0.7]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "50", "100"]
    assert axes.get_lines()[0].get_xdata().tolist() == [0.0, 1.0, 1.0, *7 * [2.0]]
