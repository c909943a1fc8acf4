"""``murmuration score``: rewards of answers, from a saved model."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from murmuration.cli.models import score
from murmuration.preference.data.errors import InputError
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.reward import RewardModel


@pytest.fixture
def model(tmp_path):
    features = HashingFeatures(dimension=17)
    theta_D = np.random.default_rng(0).normal(size=17)
    RewardModel(theta_D, features).save(tmp_path / "model")
    return tmp_path / "model"


def test_json(cli, model):
    code, stdout, lines = cli(
        "score", model, "--prompt", "What now?", "--response", "Save it.", "--response", "Spend!",
        "--json",
    )  # fmt: skip
    assert (code, lines) == (0, [])
    expected = RewardModel.load(model).score(["What now?"] * 2, ["Save it.", "Spend!"])
    assert json.loads(stdout)["scores"] == pytest.approx(expected.tolist())


def test_the_folder_of_a_run_stands_for_its_model(cli, model):
    call = ("--prompt", "What now?", "--response", "Save it.", "--json")
    of_model = cli("score", model, *call)
    (model.parent / "ledger.jsonl").write_text("")
    assert cli("score", model.parent, *call) == of_model
    (model.parent / "config.json").write_text("{}")
    with pytest.raises(InputError, match=rf"its model is {model}$"):
        RewardModel.load(model.parent)


def test_table_has_the_best_first(cli, model):
    answers = ["Save it.", "Spend!", "[bold]wait[/bold]"]
    _, stdout, _ = cli(
        "score", model, "--prompt", "?", *[p for a in answers for p in ("--response", a)]
    )
    scores = RewardModel.load(model).score(["?"] * 3, answers)
    shown = [line for line in stdout.splitlines() if line.startswith(("+", "-"))]
    best = [answers[i] for i in np.argsort(-scores)]
    assert [line.split(maxsplit=1)[1].strip() for line in shown] == best


def test_that_hashed_words_ignore_the_prompt_is_said(cli, model, monkeypatch):
    call = ("score", model, "--prompt", "?", "--response", "x")
    line = "This model ignores the prompt: it reads the response alone."
    assert cli(*call)[1].splitlines()[-1] == line
    assert line not in cli(*call, "--json")[1]
    monkeypatch.setattr(score, "ignores_prompt", lambda model: False)
    assert line not in cli(*call)[1]


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_no_model(refusal, tmp_path, folder):
    (tmp_path / "empty").mkdir()
    message = refusal("score", tmp_path / folder, "--prompt", "a", "--response", "b")
    assert str(tmp_path / folder) in message


def test_rows_of_a_file(cli, model, write_rows, tmp_path):
    """Answers, pairs and conversations in one file; each text has its score."""
    chat = [{"role": "user", "content": "Rent?"}]
    rows = [
        {"prompt": "Buy?", "response": "Wait a year."},
        {"prompt": "Buy?", "completion": "Now!"},
        {"prompt": chat, "chosen": "For a year.", "rejected": "Never."},
    ]
    out = tmp_path / "scored.jsonl"
    code, stdout, _ = cli("score", model, "--data", write_rows(rows), "--out", out, "--json")
    assert code == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    texts = ["Wait a year.", "Now!", "For a year.", "Never."]
    expected = RewardModel.load(model).score(["Buy?", "Buy?", "Rent?", "Rent?"], texts).tolist()
    pair = [found[2]["score_chosen"], found[2]["score_rejected"]]
    assert [found[0]["score"], found[1]["score"], *pair] == pytest.approx(expected)
    result = json.loads(stdout)
    assert (result["rows"], result["texts"]) == (3, 4)
    assert result["chosen_scores_higher"] == float(expected[2] > expected[3])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"prompt": "a"}, "line 2: neither `prompt` and `response`"),
        ([1], "line 2: expected an object"),
    ],
)
def test_a_bad_row_leaves_nothing(refusal, model, write_rows, tmp_path, row, why):
    rows = write_rows([{"prompt": "a", "response": "b"}, row], "rows.jsonl")
    out = tmp_path / "scored.jsonl"
    assert why in refusal("score", model, "--data", rows, "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "rows.jsonl"]


def test_options_that_do_not_go_together(refusal, model, tmp_path):
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for options, why in (
        (["--data", "x"], "--data needs --out"),
        (["--data", "x", "--out", taken], "is there already"),
        (["--data", "x", "--out", "y", "--prompt", "p"], "leave out --prompt"),
        (["--prompt", "p"], "pass --prompt and --response"),
        (["--system", "x", "--prompt", "p", "--response", "r"], "--system: a reward has"),
    ):
        assert why in refusal("score", model, *options)
    assert taken.read_text() == "mine"


def test_messages_and_a_base_that_is_given(cli, refusal, language_model, tmp_path):
    base = language_model("bert")
    from murmuration.preference.features.encoders import EncoderFeatures

    features = EncoderFeatures(base)
    theta_D = np.random.default_rng(0).normal(size=features.dimension)
    RewardModel(theta_D, features).save(tmp_path / "far" / "model")
    (tmp_path / "far" / "model").rename(tmp_path / "model")  # from where no way leads to the base
    asked = ["score", tmp_path / "model", "--prompt", "what now ?", "--response", "wait", "--json"]
    assert "made on the base 'bert'" in refusal(*asked)
    code, stdout, _ = cli(*asked, "--base", base)
    assert code == 0
    expected = theta_D.astype(np.float32) @ features(["what now ?"], ["wait"])[0]
    assert json.loads(stdout)["scores"] == pytest.approx([expected], abs=1e-5)


def test_how_far_it_is_is_shown_at_a_terminal(cli, model, write_rows, tmp_path, monkeypatch):
    shown = io.StringIO()
    terminal = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(score, "console", lambda *, stderr: terminal)
    rows = [{"prompt": "Buy?", "response": f"Wait {at} years."} for at in range(600)]
    given = ("--data", write_rows(rows), "--out", tmp_path / "scored.jsonl", "--json")
    code, stdout, _ = cli("score", model, *given)
    assert (code, json.loads(stdout)["texts"]) == (0, 600)
    assert "600 texts" in shown.getvalue() and "texts per second" in shown.getvalue()


def test_a_base_is_asked_with_a_system_prompt(cli, language_model):
    base = language_model("gpt2-chat")
    call = ["score", base, "--prompt", "what now ?", "--response", "wait", "--json"]
    plain, given, none = (
        json.loads(cli(*call, *more)[1])["scores"]
        for more in ((), ("--system", "save it"), ("--system", ""))
    )
    assert none == plain != given
