"""The page on data: its example converts conversations with scores, and names are named."""

import json
import re
import sys
from pathlib import Path

import pytest

from murmuration.preference.data.columns import RANKING_COLUMNS, USER_COLUMNS
from murmuration.preference.data.conversations import messages_of
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.schema import Schema

ROOT = Path(__file__).parents[2]
PAGE = "".join(
    next(ROOT.glob(f"docs/**/{name}.md")).read_text(encoding="utf-8")
    for name in ("data", "judgements")
)


def model(turn, within, content, score, chosen=False):
    return {
        "turn": turn,
        "role": "model",
        "content": content,
        "model_name": "some-model",
        "model_provider": "some-provider",
        "score": score,
        "if_chosen": chosen,
        "within_turn_id": within,
    }


def user(turn, content):
    return {"turn": turn, "role": "user", "content": content}


@pytest.fixture
def talks(tmp_path, monkeypatch):
    """Made-up rows with the columns of PRISM's conversations.jsonl."""
    (code,) = re.findall(r"```python\n# prism\.py\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "prism.py").write_text(code, encoding="utf-8")
    history = [user(0, "Hi"), model(0, 0, "Yes?", 40), model(0, 1, "Hello!", 90, True)]
    history += [model(0, 2, "No", 1), model(0, 3, "What", 40)]
    history += [user(1, "Why?"), model(1, 0, "So.", 50, True), model(1, 1, "So.", 50, True)]
    history += [user(2, "But?"), model(2, 0, "Because.", 7, True)]
    history += [user(3, "Bye"), model(3, 0, "", 1), model(3, 1, "B", 2, True), model(3, 2, "C", 1)]
    talk = {
        "conversation_id": "c0",
        "user_id": "user7",
        "conversation_type": "values guided",
        "opening_prompt": "Hi",
        "conversation_turns": 4,
        "conversation_history": history,
        "performance_attributes": {"values": 80},
        "choice_attributes": {"values": 50},
        "open_feedback": "fine",
        "generated_datetime": "2023-12-01 10:00:00",
        "timing_duration_s": 300.0,
        "timing_duration_mins": 5.0,
        "included_in_balanced_subset": True,
    }
    (tmp_path / "conversations.jsonl").write_text(json.dumps(talk) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("prism", None)


@pytest.mark.usefixtures("talks")
def test_conversations_with_scores():
    found = load_judgements("prism:rows", schema=Schema("top-1", 4))
    assert found.user_ids == ("user7",)
    assert found.prompts[0] == "Hi"
    assert [message["content"] for message in messages_of(found.prompts[1])] == [
        "Hi",
        "Hello!",
        "Why?",
    ]
    assert [message["content"] for message in messages_of(found.prompts[2])] == [
        *("Hi", "Hello!", "Why?", "So.", "But?", "Because.", "Bye")
    ]
    assert found.responses == [("Hello!", "Yes?", "No", "What"), ("So.", "So."), ("B", "C")]
    assert found.y_R.tolist() == [1.0, 0.5, 1.0]


@pytest.mark.usefixtures("talks")
def test_all_scores_of_conversations_as_rankings():
    found = load_judgements("prism:rows", schema=Schema("ranking", 4))
    assert found.responses[0] == ("Hello!", "Yes?", "What", "No")
    assert list(found.groups_R) == [(1, 2, 1), (2,), ()]


@pytest.mark.parametrize("column", [*USER_COLUMNS, *RANKING_COLUMNS])
def test_every_known_name_of_a_column_is_on_the_page(column):
    assert f"`{column}`" in PAGE
