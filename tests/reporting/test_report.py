"""The report: what it claims, what it warns of, and that it is written whole."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from cards import Parsed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.theorems import Mechanism
from murmuration.reporting.provenance import Provenance
from murmuration.reporting.report import page, write_report

IMAGES = {"accuracy": (b"light", b"dark"), "noise": (b"light", b"dark")}
USERS_TOO = {**IMAGES, "users": (b"light", b"dark")}
SPREAD = {
    "knots": [0.0, 0.5, 1.0],
    "shares": [0.1, 0.2, 0.7],
    "deciles": [0.2, 0.5, 0.5, *7 * [1.0]],
    "errors": [0.03, *9 * [0.0]],
}


@pytest.fixture
def written(make_result):
    """The page for a result with changes, its white space as a reader sees it."""

    def write(private=True, **changes):
        result = make_result(private, **{"rounds": 4, "rounds_planned": 4, **changes})
        return " ".join(page(result, USERS_TOO).split())

    return write


def test_one_round_has_no_course(written):
    several, one = written(), written(rounds=1, rounds_planned=1)
    assert "Over the rounds" in several and "for all rounds' models taken together" in several
    assert "Over the rounds" not in one and "rounds' models" not in one
    assert "This holds whatever else is known" in one


# Without what a path is made of, of which the last name alone is shown.
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_texts_stay_texts(make_result, text):
    features = {"kind": text, "path": text}
    named = {"strategy": text, "features": features, "model": text}
    result = make_result(stopped=text, warnings=[text, text], **named)
    found, usual = Parsed(page(result, IMAGES)), Parsed(page(make_result(), IMAGES))
    assert found.open == []
    assert sum(text.strip() in said for said in found.texts) >= 7
    assert set(found.tags) == set(usual.tags)


def test_nothing_is_fetched(make_result):
    text = page(make_result(), IMAGES)
    links = Parsed(text).links
    assert len(links) == 4 and all(link.startswith("data:image/png;base64,") for link in links)
    assert "http" not in text and "url(" not in text and "@import" not in text


def test_files(tmp_path, make_result, make_metrics):
    result = make_result(rounds=4)
    assert write_report(tmp_path, result, make_metrics(result)) == tmp_path / "report.html"
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == ["plots/accuracy.png", "plots/noise.png", "report.html"]
    write_report(tmp_path, {**result, "accuracy_over_users": SPREAD}, make_metrics(result))
    assert (tmp_path / "plots" / "users.png").is_file()
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 6  # light and dark


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_claim_comes_first_with_its_adjacency(written, adjacency):
    text = written(adjacency=adjacency.value)
    claim = text[: text.index("<table>")]
    assert "User-level DP: ε = 3.00, δ = 1e-5" in claim  # 2.9914 rounded up
    assert text.count(adjacency.sentence().replace("'", "&#39;")) == 1
    assert f"<td>{adjacency.value}</td>" in text


def test_warnings_and_early_stop_stand_before_the_figures(written):
    text = written(stopped="The budget is used up.", warnings=["Mind this.", "And that."])
    top = text[: text.index("<table>")]
    assert all(words in top for words in ("The budget is used up.", "Mind this.", "And that."))
    assert "<aside>" not in written(stopped=None, warnings=[])


def test_nonprivate_run_claims_nothing(written):
    text = written(private=False)
    assert "<h1>No privacy" in text and "exact gradients were released" in text
    assert "ε" not in text and "differential privacy" not in text
    assert "Everything: no user of this run is protected." in text


def test_figures_are_not_over_precise(written):
    text = written()
    for shown in ("74.3 %", "73.9 %", "at most 2.5 points", "43,000 users per second", "2.5 s"):
        assert shown in text
    for exact in ("2.9914", "0.743", "74.31", "43219", "1.31724", "2.49"):
        assert exact not in text


def test_folder_does_not_show(written):
    assert "/home/ada" not in written()


def test_what_is_not_covered(written):
    public, held_out = written(test_is_public=True), written(test_is_public=False)
    for text in (public, held_out):
        assert "private/" in text and "secret" in text and "The server is trusted" in text
    assert "declared public" in public and "declared public" not in held_out
    assert "OUTSIDE THE GUARANTEE" in held_out and "Nobody was held out" not in held_out
    noisy = written(test_is_public=False, heldout_epsilon=1.5, heldout_noise=0.0021)
    assert "OUTSIDE THE GUARANTEE" not in noisy
    assert "has noise at ε = 1.5" in noisy
    assert "at most 2.5 points, 0.3 of them noise" in noisy
    assert "The seed, the coins" in written(seeded=True)


@pytest.mark.parametrize("how", ["empirical", "by construction"])
def test_what_holds_between_users_is_told(written, how):
    text = written(user_isolation=how)
    assert f"<td>{how}<small>" in text
    assert ("measured, not proven" in text) == (how == "empirical")
    assert "Isolation of users" not in written(private=False, user_isolation=None)


def test_no_accuracy(written):
    text = written(heldout_accuracy=None, heldout_accuracy_by_user=None, heldout_users=0)
    assert "not measured" in text


def test_no_rounds_and_no_speed(written):
    text = written(rounds=0, rounds_planned=5, users_per_second=None)
    assert "of 5 planned" in text and "users a second" not in text


def test_texts_are_escaped(written):
    evil = '<script>alert("x")</script>'
    text = written(
        warnings=[evil],
        stopped=evil,
        strategy=evil,
        features={"kind": "encoder", "path": evil},
    )
    assert "<script" not in text and text.count("&lt;script&gt;") == 4


def test_replaced_whole_or_not_at_all(tmp_path, make_result, monkeypatch):
    write_report(tmp_path, make_result(rounds=1), [])
    before = (tmp_path / "report.html").read_bytes()
    flushed = []

    def fail_at_the_page(descriptor):
        flushed.append(descriptor)
        if len(flushed) == 5:  # two plots before it, each a file and a name
            raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail_at_the_page)
    with pytest.raises(OSError, match="disk full"):
        write_report(tmp_path, make_result(private=False, rounds=1), [])
    assert (tmp_path / "report.html").read_bytes() == before
    assert not [p for p in tmp_path.rglob(".*") if p.is_file()]


def test_threads_draw_the_same_as_one_alone(tmp_path, make_result, make_metrics):
    def write(name):
        result = make_result(rounds=5, private=name[0] == "p")
        return write_report(tmp_path / name, result, make_metrics(result)).read_bytes()

    names = ["p1", "n1"]
    alone = {name[0]: write(name) for name in ("p0", "n0")}
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(write, names))
    assert together == [alone[name[0]] for name in names]


def test_pyplot_is_left_alone():
    module = "murmuration.reporting.plots"
    code = f"import sys, {module}; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_who_is_served_least_is_in_the_page(make_result):
    result = {"accuracy_over_users": SPREAD, "heldout_epsilon": 1.5}
    result["test_is_public"] = False
    text = " ".join(page(make_result(**result), USERS_TOO).split())
    assert "20.0 % ± 3.0 for the tenth of users whom it suits least" in text
    assert "Counts have noise at ε = 1.5" in text


def test_where_there_are_texts_nobody_speaks_of_judgements(written):
    features = {"kind": "language-model", "train": "full", "path": "x", "task": "text"}
    more = {
        "task": "text",
        "accuracy_over_users": SPREAD,
        "heldout_loss": 2.5,
        "heldout_perplexity": 12.18,
        "features": features,
    }
    for private in (True, False):
        text = written(private, **more)
        assert "2.500 nats a token" in text
        assert "Texts of a user in a round" in text
        assert "judge" not in text and "referred" not in text


def test_a_policy_says_what_became_of_responses(written):
    figures = {"saturated": 0.25, "chosen_ratio": -0.5, "rejected_ratio": -2.25,
               "chosen_tokens": 31.24, "written_tokens": 40.0}  # fmt: skip
    text = written(task="policy", policy=figures)
    assert "rejected responses</th><td>-0.50 and -2.25 nats" in text
    assert "Pairs beyond the clip</th><td>25.0 %" in text
    assert "Tokens of a response</th><td>40.0" in text and "that was chosen 31.2" in text
    assert "Pairs beyond the clip" not in written(task="policy")
    text = written(task="policy", policy={"moved": 0.0123})
    assert "Moved from its base</th><td>0.012 nats a token" in text


TEXT = {"task": "text", "heldout_loss": 2.5, "heldout_perplexity": 12.18}


def test_a_reward_is_right_about_judgements(written):
    text = written(heldout_chance=0.25)
    assert re.search("Held-out accuracy</th><td>74.3 %<small>.*judgements of 330 users", text)
    assert "guessing comes to 25.0 %" in text
    assert "How often the model prefers the response" in written(private=False)


def test_next_tokens_are_guessed(written):
    text = written(**TEXT)
    assert "Held-out loss</th><td>2.500 nats a token, perplexity 12.18" in text
    assert "Next tokens guessed right</th>" in text and "guessing comes" not in text
    assert "how often the likeliest next token" in text


@pytest.mark.parametrize("task", [{}, TEXT])
@pytest.mark.parametrize(
    ("epsilon", "why"), [(None, "No held-out user could be asked."), (1.5, "Too few users for")]
)
def test_nobody_could_be_asked(written, task, epsilon, why):
    text = written(heldout_accuracy=None, heldout_epsilon=epsilon, **task)
    assert f"Held-out accuracy</th><td>not measured<small>{why}" in text


def test_nobody_was_held_out(written):
    text = written(
        heldout_accuracy=None, heldout_users=0, test_is_public=False, group_size=0, users=9
    )
    assert "not measured<small>Nobody was held out." in text
    assert "Nobody was held out, so no accuracy is told" in text
    assert "OUTSIDE THE GUARANTEE" not in text
    assert "Judgements of a user in a round</th><td>all" in text


def test_what_the_operator_states_stands_first_and_is_a_text(make_result):
    text = page(make_result(), IMAGES, Provenance(note="Advice <b>2026</b>, Ada & Co"))
    assert "Advice &lt;b&gt;2026&lt;/b&gt;, Ada &amp; Co" in text
    assert text.index("Ada &amp; Co") < text.index("<h2>Figures</h2>")
    assert "as the operator states" not in page(make_result(), IMAGES)


@pytest.mark.parametrize(("alone", "more"), [(8.36, True), (7.9, False)])
def test_a_part_that_exceeds_the_total_is_explained(make_result, alone, more):
    parts = [("gradient sum", 200, alone), ("figures about held-out users", 1, 2.47)]
    result = make_result(epsilon=8.0, test="", test_is_public=False, heldout_epsilon=4.0)
    text = page(result, IMAGES, Provenance(parts=parts))
    assert ("A part alone can even exceed the total" in text) == more


def test_a_figure_is_not_broken_in_the_title(make_result):
    title = page(make_result(), IMAGES).split("<h1>")[1].split("</h1>")[0]
    assert "ε\u00a0=\u00a0" in title and " = " not in title


@pytest.mark.parametrize("mechanism", [Mechanism.RANDOMIZED_RESPONSE, Mechanism.GAUSSIAN])
def test_the_noise_is_named(written, mechanism):
    kind = mechanism.value if mechanism is Mechanism.RANDOMIZED_RESPONSE else "gaussian"
    local = "Noise</th><td>randomized response" in written(noise=kind)
    assert local == (mechanism is Mechanism.RANDOMIZED_RESPONSE)
    assert ("Gaussian, floating point" in written(noise=kind)) != local
