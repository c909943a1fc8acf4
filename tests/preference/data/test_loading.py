import json
import sys
from types import SimpleNamespace

import pytest

from murmuration.preference.choices import TASKS
from murmuration.preference.data import sources
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import (
    load_data,
    load_demonstrations,
    load_judgements,
    load_prompts,
    load_responses,
)
from murmuration.preference.data.texts import UserTexts
from tests.preference.data.files.test_reading import as_jsonl, refusal

ROWS = [
    {"user_id": user, "prompt": "p", "chosen": "yes", "rejected": "no"} for user in ("b", "a", "b")
]


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_rows.py").write_text(
        "rows = [1]\n"
        "def good():\n    yield {'user_id': 1, 'prompt': 'p', 'chosen': 'x', 'rejected': 'y'}\n"
        "def bad():\n    yield from good()\n    yield {'user_id': 2}\n"
        "def broken():\n    yield from good()\n    raise RuntimeError('no\\ndatabase')\n"
        "def wrong():\n    return 3\n"
    )
    (tmp_path / "my_broken.py").write_text("import not_there_at_all\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield
    for name in ("my_rows", "my_broken"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("module")
def test_functions():
    assert load_judgements("my_rows:good").user_ids == ("1",)
    assert refusal("my_rows:bad").startswith("my_rows:bad:2: no column 'prompt'")
    assert refusal("my_rows:broken") == "my_rows:broken: failed: RuntimeError: no"
    assert "expected an iterable of rows, found int" in refusal("my_rows:wrong")
    assert "my_rows has no 'other'" in refusal("my_rows:other")
    assert "not a function but a list" in refusal("my_rows:rows")
    assert "cannot be imported" in refusal("my_none:rows")
    assert "not_there_at_all" in refusal("my_broken:rows")


def test_a_hub_name_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install 'murmuration-rlhf[hub]'" in refusal("owner/judgements")


@pytest.mark.parametrize("reachable", [True, False])
def test_a_hub_name(monkeypatch, reachable):
    asked = []

    class Hub:
        config = SimpleNamespace(HF_HUB_OFFLINE=False)

        @staticmethod
        def load_dataset(name, split):
            asked.append((name, split, Hub.config.HF_HUB_OFFLINE))
            if name == "owner/none":
                raise ConnectionError("Couldn't reach the Hub\nmore")
            return [*ROWS, {"user_id": ""}]

    monkeypatch.setitem(sys.modules, "datasets", Hub)
    monkeypatch.setattr(sources, "hub_is_reachable", lambda: reachable)
    judgements = load_judgements("owner/rows", on_bad_rows="skip")
    assert asked == [("owner/rows", "train", not reachable)]
    assert Hub.config.HF_HUB_OFFLINE is False
    assert len(judgements) == 3
    assert judgements.set_aside[0].startswith("owner/rows:4: ")
    message = refusal("owner/none")
    assert message.startswith("owner/none: no such file or folder here")
    assert "no network" in message
    assert message.endswith("Couldn't reach the Hub")


def test_an_existing_path_wins_over_the_hub(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "rows").mkdir(parents=True)
    (tmp_path / "owner" / "rows" / "x.jsonl").write_bytes(as_jsonl(ROWS))
    assert len(load_judgements("owner/rows")) == 3


@pytest.mark.parametrize(
    ("name", "content"),
    [("p.jsonl", '{"prompt": "a"}\n{"prompt": "b"}\n'), ("p.csv", "prompt,more\na,1\nb,2\n")],
)
def test_prompts_are_read_from_any_kind_of_file(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert list(load_prompts(str(tmp_path / name))) == ["a", "b"]
    (tmp_path / name).write_text(content.replace("prompt", "text"))
    with pytest.raises(InputError, match=rf"{name}: line \d has no prompt"):
        list(load_prompts(str(tmp_path / name)))


@pytest.mark.parametrize("line", ['{"prompt": 3}', '{"prompt": " "}', "[1]", "what now?"])
def test_a_line_that_is_no_prompt_is_named(tmp_path, line):
    (tmp_path / "p.jsonl").write_text(f'{{"prompt": "a"}}\n{line}')
    with pytest.raises(InputError, match="line 2 has no prompt"):
        list(load_prompts(str(tmp_path / "p.jsonl")))


def test_responses_may_be_empty_and_must_be_text(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text(
        '{"prompt": "a", "response": ""}\n{"prompt": "b", "response": "c", "more": 1}\n'
    )
    assert list(load_responses(str(path))) == [("a", ""), ("b", "c")]
    for cell in ("3", "null", '"\\ud800"', "[]"):
        path.write_text(
            f'{{"prompt": "a", "response": "b"}}\n{{"prompt": "a", "response": {cell}}}\n'
        )
        with pytest.raises(InputError, match=r"r.jsonl: line 2 needs"):
            list(load_responses(str(path)))


def turns(**texts):
    return {"messages": [{"role": role, "content": text} for role, text in texts.items()]}


SYSTEM = turns(system="s", user="a", assistant="b")


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"prompt": "a", "response": "b", "more": 1}, ("a", "b")),
        ({"prompt": "a", "completion": "b"}, ("a", "b")),
        (turns(user="a", assistant="b"), ("a", "b")),
        (SYSTEM, ("\n\nSystem: s\n\nHuman: a", "b")),
    ],
)
def test_demonstrations_as_they_are_written_down(tmp_path, row, found):
    file = tmp_path / "shown.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert list(load_demonstrations(str(file))) == [found]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a"},
        {"prompt": "a", "response": " "},
        {"prompt": 1, "response": "b"},
        turns(user="a"),
        {"messages": turns(user="a")["messages"] * 2},
        turns(user=["a"], assistant="b"),
        {"messages": "a"},
        ["a", "b"],
    ],
)
def test_rows_that_demonstrate_nothing_are_named(tmp_path, row):
    file = tmp_path / "shown.jsonl"
    file.write_text('{"prompt": "a", "response": "b"}\n' + json.dumps(row) + "\n")
    with pytest.raises(InputError, match="line 2 needs a `prompt` and a `response`"):
        list(load_demonstrations(str(file)))


def test_each_task_reads_rows_of_its_own_kind(crowd, crowd_texts):
    assert TASKS[0] == "reward"
    for task in ("reward", "sft"):
        assert isinstance(load_data(task, crowd), Judgements)
        with pytest.raises(InputError, match="no column 'prompt'"):
            load_data(task, crowd_texts)
    assert isinstance(load_data("text", crowd_texts), UserTexts)
    with pytest.raises(InputError, match="no column 'text'"):
        load_data("text", crowd)


def test_columns_and_bad_rows(write_rows):
    path = write_rows([{"who": "a", "text": "x"}, {"who": "b"}])
    with pytest.raises(InputError, match=":2: no column"):
        load_data("text", path, "user_id=who")
    assert load_data("text", path, "user_id=who", "skip").user_ids == ("a", "b")
