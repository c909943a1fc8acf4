"""What is told of an alignment: the plot, and a card that promises what the reward promised."""

import json

import pytest

from murmuration.alignment.report import card, figure, write_report
from murmuration.privacy.accounting.chained_record import Head
from murmuration.privacy.accounting.terms import RunTerms
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.promise import Promise, ReleasedRun

ROWS = [
    {"step": step, "proxy": 0.1 * step, "kl": 0.05 * step, "truth": truth, "truth_error": 0.1}
    for step, truth in ((0, -1.2), (10, -0.4), (20, -0.6))
]
RESULT = {
    "base": "org/writer", "base_digest": "ab", "reward_digest": "cd", "reward": "runs/a/model",
    "lora_rank": 16, "dimension": 16384,
    "steps": {"method": "rloo", "steps": 20, "rate": 0.001, "beta": 0.1},
    "prompts_trained": 500, "saved_step": 10, "kl_is": "KL", "stopped": "parted",
    "evaluate_on": 200, "truth": "population",
    "policy": {"proxy": 1.0, "kl": 0.5, "truth": -0.4, "words": 9.0}, "clipped": 0.1,
    "reference": {"truth": -1.2, "words": 8.0}, "learnt": None, "seconds": 9.0,
}  # fmt: skip


def made(epsilon, delta=1e-5, adjacency="add-remove"):
    terms = RunTerms(caveats=frozenset({"shared passes"}))
    return Promise(
        (
            ReleasedRun(
                terms=terms,
                adjacency=Adjacency(adjacency),
                delta=delta,
                epsilon=epsilon,
                head=Head(1, "a" * 64),
            ),
        )
    )


ONCE = made(3.0)


def test_lines_are_over_the_reference_and_what_was_saved_is_marked():
    panel = figure(RESULT, ROWS).axes[0]
    drawn = {bars.get_label(): bars.lines[0].get_xydata() for bars in panel.containers}
    assert set(drawn) == {"reward that was climbed", "true reward"}
    assert drawn["true reward"].tolist() == [
        pytest.approx(pair) for pair in ([0.0, 0.0], [0.5, 0.8], [1.0, 0.6])
    ]
    assert any(line.get_label() == "saved" and line.get_xdata()[0] == 0.5 for line in panel.lines)


def test_without_a_truth_there_is_one_line():
    rows = [row | {"truth": None, "truth_error": None} for row in ROWS]
    assert len(figure({**RESULT, "saved_step": 0}, rows).axes[0].containers) == 1


def test_a_report_lies_beside_the_metrics_with_the_promise_and_the_plot(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    page = write_report(tmp_path, RESULT, ONCE).read_text()
    assert (tmp_path / "plots" / "reward_kl.png").read_bytes().startswith(b"\x89PNG")
    assert "User-level DP: ε = 3.00, δ = 1e-5, add-remove." in page
    assert "the reward went on rising" in page and "the reference&#39;s: -1.20" in page
    assert "--user-passes shared" in page and "runs/a" not in page
    assert "no better than the base" not in page
    worse = RESULT | {"policy": RESULT["policy"] | {"proxy": -0.1, "truth": None}}
    page = write_report(tmp_path, worse, ONCE).read_text()
    assert "no better than the base" in page and "True reward" not in page


def test_a_card_has_the_rewards_promise_and_says_how_it_ended():
    said = card(RESULT, ONCE)
    assert said.startswith("---\nlibrary_name: peft\nbase_model: org/writer\n")
    assert "\n- murmuration\n" in said.split("---")[1]
    assert "**User-level DP: ε = 3.00, δ = 1e-5, add-remove.**" in said
    assert "--user-passes shared" in said
    assert "Saved after 10 of 20 steps (the reward went on rising" in said
    assert "come to -0.40, the reference's to -1.20" in " ".join(said.split())
    assert "runs/a" not in said


def test_what_was_promised_stands_in_figures_and_is_that_of_all_runs():
    said = card(RESULT, ONCE | made(3.0))
    assert "| ε | 6.00 |" in said and "\n  epsilon: 6.0\n" in said
    assert "basic composition of 2 runs" in said
    assert "| ε |" not in card(RESULT, ONCE | made(1.0, adjacency="replace"))


def test_what_is_merged_is_loaded_without_peft():
    assert "PeftModel" in card(RESULT, ONCE)
    learnt = {"demonstrations": 5, "dimension": 4, "loss": 1.0}
    assert "PeftModel" not in card(RESULT | {"learnt": learnt}, ONCE)


def test_a_base_of_a_hub_is_named_and_a_folder_is_not(tmp_path):
    assert "`org/writer` (SHA-256 ab)" in card(RESULT | {"base": "org/writer"}, ONCE)
    assert str(tmp_path) not in card(RESULT | {"base": str(tmp_path)}, ONCE)


def test_a_card_says_what_was_declared_public_and_that_no_truth_was_measured():
    rows = RESULT | {"truth": "", "policy": RESULT["policy"] | {"truth": None}}
    said = card(rows, Promise().declared_public())
    assert "was declared public" in said
    assert "No true reward was measured" in said


def test_what_is_no_divergence_is_not_called_one():
    rows = RESULT | {"kl_is": "mean log-ratio"}
    assert "at a mean log-ratio of 0.5 nats" in " ".join(card(rows, ONCE).split())
    assert "at a divergence of 0.5 nats" in " ".join(card(RESULT, ONCE).split())
    labels = [
        figure({**RESULT, "kl_is": kind}, ROWS).axes[0].get_xlabel()
        for kind in ("KL", "mean log-ratio")
    ]
    assert labels == ["KL over the reference, nats", "mean log-ratio over the reference, nats"]


def test_the_card_names_the_layers_that_were_changed():
    assert "in layers" not in card(RESULT, ONCE)
    assert "LoRA of rank 16 in layers last:8 (" in card({**RESULT, "lora_layers": "last:8"}, ONCE)
