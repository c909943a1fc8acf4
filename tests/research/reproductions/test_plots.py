"""What plots have in common; that each entry's has its lines is tested beside its rows."""

from matplotlib.figure import Figure

from murmuration.research.reproductions.plots import against_n, with_intervals


def test_bars_are_intervals_and_one_seed_has_none():
    axes = Figure().subplots()
    rows = [
        {"n": 1, "error_mean": 0.5, "error_interval": 0.1},
        {"n": 2, "error_mean": 0.25, "error_interval": None},
    ]
    with_intervals(axes, rows, "n", "error", fmt="o-", label="it")
    (drawn,) = axes.containers
    ends = [segment[:, 1].tolist() for segment in drawn[2][0].get_segments()]
    assert ends == [[0.4, 0.6], [0.25, 0.25]]
    assert drawn.get_label() == "it"


def test_panels_down_and_across_and_what_belongs_to_all_columns():
    rows = [
        {"d": d, "epsilon": epsilon, "who": who, "n": n, "error_mean": 1.0 / n}
        for d in (3, 5)
        for epsilon, who in ((None, "clean"), (0.5, "noisy"), (1.0, "noisy"))
        for n in (10, 100)
    ]
    figure = against_n(
        rows,
        down="d",
        across="epsilon",
        lines="who",
        styles={"clean": ("C0", "-", "o"), "noisy": ("C1", "--", "s")},
        title=lambda row: f"{row['d']}, {row['epsilon']}",
        ylabel=lambda row: f"d = {row['d']}",
        size=(2.0, 1.0),
        margin=(0.5, 0.25),
        columns=2,
        lw=3.0,
    )
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["3, 0.5", "3, 1.0", "5, 0.5", "5, 1.0"]
    assert figure.get_size_inches().tolist() == [4.5, 2.25]
    for axes in figure.axes:
        assert [list(drawn.get_xdata()) for drawn in axes.lines] == [[10, 100]] * 2
        assert {drawn.get_linewidth() for drawn in axes.lines} == {3.0}
    assert [axes.get_ylabel() for axes in figure.axes] == ["d = 3", "", "d = 5", ""]
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "", *["judgements, n"] * 2]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["clean", "noisy"]
