"""Each task reads rows of its own kind."""

import pytest

from murmuration.preference.choices import TASKS
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import load_data
from murmuration.preference.data.texts import UserTexts


def test_what_is_read(crowd, crowd_texts):
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
