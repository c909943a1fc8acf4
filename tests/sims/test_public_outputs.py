"""What a run writes for release depends on private data through noisy releases only.

Two runs on neighbouring data with one seed, in which every noisy release is replaced by its noise
alone: the two then release the same values, so everything else that is marked public must be the
same to the last byte. Anything that differs got there past the noise.
"""

import re

import numpy as np
import pytest
from watch import public, stop_clocks

import murmuration.reporting.run_end
from murmuration.preference.reward import RewardModel
from murmuration.privacy.disclosure import Public
from murmuration.privacy.mechanisms.noisy_sum import GaussianSum, JointSum
from murmuration.privacy.mechanisms.randomized_response import RandomizedResponse
from murmuration.reporting.live.progress import RoundProgress
from murmuration.reporting.report import write_report
from murmuration.research.strategies.filtered_mean import FilteredMean


@pytest.fixture
def noise_alone(monkeypatch):
    """Mechanisms release what they would of users who contribute nothing."""

    def blind(kind, emptied):
        release = kind.release

        def call(self, *values, **more):
            return release(self, *emptied(*values), **more)

        monkeypatch.setattr(kind, "release", call)

    blind(GaussianSum, lambda sum_D: (np.zeros_like(sum_D),))
    blind(JointSum, lambda sum_D, count: (np.zeros_like(sum_D), 0.0))
    blind(FilteredMean, lambda rows_SD: (np.zeros((30, rows_SD.shape[1])),))
    # What else is exact in a release's arguments must not matter either.
    beside = GaussianSum.release

    def without(self, sum_D, **more):
        more.pop("beside", None)
        return beside(self, sum_D, **more)

    monkeypatch.setattr(GaussianSum, "release", without)


@pytest.fixture
def stopped_clock(monkeypatch):
    """Time does not pass: what the server measures of it is in docs/explanation/sharp-edges.md."""
    stop_clocks(monkeypatch)


def crowd(make_rows, change):
    """Rows of 40 users, of whom one is changed."""
    rows = make_rows([3] * 39 + [9], seed=1)
    changed = rows[-1]["user_id"]
    if change == "gone":
        return [row for row in rows if row["user_id"] != changed]
    if change == "other":
        others = make_rows([3] * 39 + [2], seed=99)
        return [row for row in rows if row["user_id"] != changed] + others[-2:]
    if change == "flipped":
        flip = {"chosen": "rejected", "rejected": "chosen"}
        return [
            {flip.get(k, k): v for k, v in row.items()} if row["user_id"] == changed else row
            for row in rows
        ]
    return rows


def named_alike(write_rows, rows, version):
    """A file of rows in a folder of its own: reports print the name of a file, not its folder."""
    return write_rows(rows, f"{version}/judgements.jsonl")


#: Those of which the report and its plots are compared too; they take their time.
REPORTED = {"uls", "adaptive"}
STRATEGIES = {
    "uls": ["--strategy", "uls"],
    "dp-fedavg": ["--strategy", "dp-fedavg"],
    "els": ["--strategy", "els", "--group-size", "4"],
    "group": ["--strategy", "group", "--group-size", "2"],
    "adaptive": ["--strategy", "adaptive"],
    "aup": ["--strategy", "aup"],
    "aup-corrected": ["--strategy", "aup-corrected", "--epsilon", "60"],
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow if "corrected" in n else ()) for n in STRATEGIES],
)
@pytest.mark.parametrize("change", ["gone", "other"])
def test_nothing_gets_past_the_noise(
    cli, make_rows, write_rows, crowd_test, tmp_path, noise_alone, stopped_clock,
    quick_runs, monkeypatch, name, change,
):  # fmt: skip
    seen, printed = [], []
    replaced = change == "other"
    if replaced and name == "els":
        pytest.skip("els has no guarantee there")
    if name in REPORTED:
        monkeypatch.setattr(murmuration.reporting.run_end, "write_report", write_report)
    for version in ("as it was", change):
        out = tmp_path / version.replace(" ", "-")
        data = named_alike(write_rows, crowd(make_rows, version), len(seen))
        code, text, _ = cli(
            *("run", "--data", data, "--test", crowd_test, "--users", 40, "--cohort", 30),
            *("--rounds", 3, "--seed", 5, "--out", out, "--json"),
            *("--adjacency", "replace" if replaced else "add-remove"),
            *STRATEGIES[name],
        )
        assert code == 0
        seen.append(public(out, data))
        printed.append(text.replace(str(out), "RUN").replace(data, "DATA"))
        private = (out / "private/log.jsonl").read_text()
        assert "cohort" in private, "what is private must be somewhere, or nothing was tested"
    assert seen[0].keys() == seen[1].keys()
    for file, content in seen[0].items():
        assert content == seen[1][file], f"{file} differs"
    assert printed[0] == printed[1]


@pytest.mark.parametrize("encoder", [False, True])
def test_what_is_printed_of_private_data_exactly_is_labelled(
    cli, make_rows, write_rows, crowd_test, tmp_path, noise_alone, stopped_clock,
    quick_runs, monkeypatch, language_model, encoder,
):  # fmt: skip
    """Rows of a column, skipped rows, texts that an encoder read: with and without one user."""
    monkeypatch.setattr(RoundProgress, "left", None)  # a clock's
    features = ["--features", language_model("bert")] if encoder else []
    printed = []
    for version in ("as it was", "gone"):
        monkeypatch.setenv("MURMURATION_CACHE", str(tmp_path / f"cache {version}"))
        rows = crowd(make_rows, version)
        rows += [{"user_id": "broken", "prompt": str(n)} for n in range(2 + len(printed))]
        if not encoder:
            rows = [{**row, "annotator": row["user_id"]} for row in rows]
            for row in rows:
                del row["user_id"]
        code, _, lines = cli(
            *("run", "--data", write_rows(rows, f"{len(printed)}.jsonl"), "--test", crowd_test),
            *("--users", 40, "--cohort", 30, "--rounds", 3, "--seed", 5, "--json"),
            *("--strategy", "dp-fedavg"),  # whose progress is among the lines
            *("--on-bad-rows", "skip", "--out", tmp_path / version.replace(" ", "-"), *features),
        )
        assert code == 0, lines
        printed.append(lines)
    labelled = [[line for line in lines if "operator only: " in line] for lines in printed]
    for lines in labelled:
        assert any("skipped rows" in line for line in lines)
        assert any("read from the column" in line for line in lines) is not encoder
        assert any("texts read in" in line for line in lines) is encoder
    assert labelled[0] != labelled[1], "nothing was tested"
    # Which rounds before the last are shown depends on how busy the machine is.
    early = re.compile(r"dp-fedavg: (?!round 3 of 3)|.*operator only: ")
    told = [[line for line in lines if not early.match(line)] for lines in printed]
    assert told[0] == told[1]
    assert any("round 3 of 3, ε" in line for line in told[0])


#: Where prompts and responses are public; of the user who changes, all labels turn around.
OF_LABELS = {
    "uls": ["--strategy", "uls", "--rounds", "3", "--cohort", "30"],
    "label-moment": ["--strategy", "label-moment"],
    "label-moment, two rounds": ["--strategy", "label-moment", "--rounds", "2"],
    "objective-perturbation": ["--strategy", "objective-perturbation"],
    "local-label": ["--strategy", "local-label"],
    "local-label, sgd": ["--strategy", "local-label", "--estimator", "sgd"],
}


@pytest.mark.parametrize("name", OF_LABELS)
def test_labels_do_not_get_past_the_noise(
    cli, make_rows, write_rows, crowd_test, tmp_path, noise_alone, stopped_clock,
    quick_runs, monkeypatch, name,
):  # fmt: skip
    answer = RandomizedResponse.answer  # its coins alone, whatever is true
    monkeypatch.setattr(
        RandomizedResponse, "answer", lambda self, truth, words: answer(self, 0 * truth, words)
    )
    seen, printed = [], []
    for version in ("as it was", "flipped"):
        out = tmp_path / version.replace(" ", "-")
        data = named_alike(write_rows, crowd(make_rows, version), len(seen))
        code, text, _ = cli(
            *("run", "--data", data, "--test", crowd_test, "--users", 40, "--epsilon", 8),
            *("--seed", 5, "--out", out, "--json", "--adjacency", "replace-labels"),
            *OF_LABELS[name],
        )
        assert code == 0
        seen.append(public(out, data))
        printed.append(text.replace(str(out), "RUN").replace(data, "DATA"))
    assert seen[0].keys() == seen[1].keys()
    for file, content in seen[0].items():
        assert content == seen[1][file], f"{file} differs"
    assert printed[0] == printed[1]


def test_a_tracker_hears_nothing_that_got_past_the_noise(
    cli, make_rows, write_rows, crowd_test, tmp_path, noise_alone, stopped_clock,
    quick_runs, monkeypatch,
):  # fmt: skip
    (tmp_path / "told_there.py").write_text("heard = {}\nreport = heard.__setitem__\n")
    monkeypatch.syspath_prepend(tmp_path)
    heard = []
    for version in ("as it was", "gone"):
        code, _, _ = cli(
            *("run", "--data", write_rows(crowd(make_rows, version), f"{len(heard)}.jsonl")),
            *("--test", crowd_test, "--users", 40, "--cohort", 30, "--rounds", 3, "--seed", 5),
            *("--out", tmp_path / version.replace(" ", "-"), "--json"),
            *("--report-to", "told_there:report"),
        )
        assert code == 0
        from told_there import heard as told  # pyright: ignore[reportMissingImports]

        heard.append(dict(told))
        told.clear()
    assert len(heard[0]) == 3
    assert heard[0] == heard[1]


def test_the_test_can_fail(
    cli,
    make_rows,
    write_rows,
    crowd_test,
    tmp_path,
    noise_alone,
    stopped_clock,
    monkeypatch,
):
    """With the realised cohort among the metrics, two runs differ."""
    from murmuration.strategies.uls import Uls

    monkeypatch.setattr(
        Uls, "figures", lambda self: {"cohort": Public(float(self._asked.total))}, raising=False
    )
    found = []
    for version in ("as it was", "gone"):
        out = tmp_path / version.replace(" ", "-")
        code, _, _ = cli(
            *("run", "--data", write_rows(crowd(make_rows, version), f"{len(found)}.jsonl")),
            *("--test", crowd_test, "--users", 40, "--cohort", 38, "--rounds", 3, "--seed", 5),
            *("--out", out, "--json"),
        )
        assert code == 0
        found.append(public(out, "")["metrics.jsonl"])
    assert found[0] != found[1]


def test_models_differ_where_noise_does_not_hide_it(
    cli, make_rows, write_rows, crowd_test, tmp_path
):
    """The same two data sets without the blindfold: the released model does depend on them."""
    thetas = []
    for version in ("as it was", "flipped"):
        out = tmp_path / version.replace(" ", "-")
        cli(
            *("run", "--data", write_rows(crowd(make_rows, version), f"{len(thetas)}.jsonl")),
            *("--test", crowd_test, "--users", 40, "--cohort", 40, "--rounds", 2, "--seed", 5),
            *("--out", out, "--json"),
        )
        thetas.append(RewardModel.load(out / "model").theta_D)
    assert not np.array_equal(*thetas)
