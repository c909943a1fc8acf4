"""The page on data: its example converts conversations with scores, and names are named."""

import json
import re
from pathlib import Path

import pytest

from murmuration.preference.data.columns import RANKING_COLUMNS, USER_COLUMNS
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.data.messages import messages_of
from murmuration.preference.data.schema import Schema

ROOT = Path(__file__).parents[3]
PAGE = next(ROOT.glob("docs/**/data.md")).read_text(encoding="utf-8")


def model(turn, content, score, chosen=False):
    return {"turn": turn, "role": "model", "content": content, "score": score, "if_chosen": chosen}


def user(turn, content):
    return {"turn": turn, "role": "user", "content": content}


@pytest.fixture
def talks(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n# prism\.py\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "prism.py").write_text(code, encoding="utf-8")
    history = [user(0, "Hi"), model(0, "Yes?", 40), model(0, "Hello!", 90, True), model(0, "No", 1)]
    history += [user(1, "Why?"), model(1, "So.", 50, True), model(1, "Because.", 50)]
    talk = {"user_id": "user7", "conversation_id": "c1", "conversation_history": history}
    (tmp_path / "conversations.jsonl").write_text(json.dumps(talk) + "\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


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
    assert found.responses == [("Hello!", "Yes?", "No"), ("So.", "Because.")]
    assert found.y_R.tolist() == [1.0, 0.5]


@pytest.mark.parametrize("column", [*USER_COLUMNS, *RANKING_COLUMNS])
def test_every_known_name_of_a_column_is_on_the_page(column):
    assert f"`{column}`" in PAGE
