"""The figure of the label-DP paper: rows, orders, and what is said about them."""

import numpy as np
import pytest

from murmuration.research.reproductions import label_dp_fig1
from murmuration.research.reproductions.label_dp_fig1 import (
    DEBIASED,
    MLE,
    NON_PRIVATE,
    OBJECTIVE,
    PLAIN,
    SGD,
    SGD_PUBLISHED,
)

SMALL = {
    "dimensions": (3,),
    "sizes": (500, 2000),
    "epsilons": (0.1, 1.0),
    "repetitions": 24,
    "workers": 1,
}


@pytest.fixture(scope="module")
def rows():
    return label_dp_fig1.label_dp_fig1(**SMALL)


def error(rows, epsilon, estimator, size):
    (row,) = [
        row
        for row in rows
        if (row["epsilon"], row["estimator"], row["n"]) == (epsilon, estimator, size)
    ]
    return row["error_mean"]


def test_estimators_come_in_the_papers_order(rows):
    assert error(rows, None, NON_PRIVATE, 2000) < error(rows, 1.0, OBJECTIVE, 2000)
    for local in (DEBIASED, SGD, MLE):
        assert error(rows, 1.0, OBJECTIVE, 2000) < error(rows, 1.0, local, 2000)
        assert error(rows, 1.0, local, 2000) < error(rows, 1.0, SGD_PUBLISHED, 2000)
        assert error(rows, 1.0, local, 2000) < error(rows, 0.1, local, 2000)


def test_errors_fall_but_where_they_cannot(rows):
    for estimator in (OBJECTIVE, DEBIASED, SGD, MLE):
        assert error(rows, 1.0, estimator, 2000) < 0.9 * error(rows, 1.0, estimator, 500)
    for estimator in (PLAIN, SGD_PUBLISHED):
        assert error(rows, 1.0, estimator, 2000) > 0.75 * error(rows, 1.0, estimator, 500)


def test_labels_taken_as_true_pull_towards_zero(rows):
    excess = {
        row["estimator"]: row["excess"] for row in rows if (row["epsilon"], row["n"]) == (0.1, 2000)
    }
    assert excess[PLAIN] < -0.8
    assert all(excess[PLAIN] < found for name, found in excess.items() if name != PLAIN)


def test_remarks_follow_from_the_rows(rows):
    text = " ".join(label_dp_fig1.remarks(rows))
    assert "in 1 of 1 cases" in text
    assert f"{SGD_PUBLISHED}, ε = 1" in text
    turned = [row | {"error_mean": 9.0} if row["estimator"] == OBJECTIVE else row for row in rows]
    assert "in 0 of 1 cases" in " ".join(label_dp_fig1.remarks(turned))


def test_quick_is_less_of_the_same_in_any_number_of_tasks(monkeypatch):
    seen = []

    def found(task):
        seen.append(task)
        return {
            (None, size, NON_PRIVATE): (np.ones(task.repetitions), np.zeros(task.repetitions))
            for size in task.sizes
        }

    monkeypatch.setattr(label_dp_fig1, "in_processes", lambda _, tasks, workers: map(found, tasks))
    rows = label_dp_fig1.label_dp_fig1(True, workers=1)
    assert [task.repetitions for task in seen] == [10, 10]
    assert len({task.seed for task in seen}) == 2
    assert [row["n"] for row in rows] == [1000, 2000, 4000]


def test_the_plot_has_every_line():
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
    figure = label_dp_fig1.plot(rows)
    assert len(figure.axes) == 4
    drawn = [[len(line.get_xdata()) for line in axes.lines] for axes in figure.axes]
    assert [sum(points > 0 for points in panel) for panel in drawn] == [2, 3, 2, 3]
