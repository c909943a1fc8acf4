"""Every form in which pairs and prompts with chat turns are kept."""

import json
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.data.conversations import messages_of, prompt_cell, text_of
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.loading import load_prompts, load_responses
from tests.preference.data.test_rows import NAMES, judged


def said(*turns):
    return [
        {"role": role, "content": content}
        for role, content in zip(["user", "assistant"] * len(turns), turns, strict=False)
    ]


ASKED = said("What is the sky?")
LONG = said("Hi", "Hello", "What is the sky?")
FOLLOWED = "\n\nHuman: Hi\n\nAssistant: Hello\n\nHuman: What is the sky?"


def answer(text):
    return {"role": "assistant", "content": text}


def of_objects(messages):
    array = np.empty(len(messages), dtype=object)
    array[:] = messages
    return array


def shared_gpt(messages):
    names = {"user": "human", "assistant": "gpt"}
    return [{"from": names[each["role"]], "value": each["content"]} for each in messages]


def in_parts(messages, key="content"):
    return [{"role": m["role"], key: [{"type": "text", "text": m["content"]}]} for m in messages]


#: How messages are written into one cell.
WRITTEN = {
    "as they are": list,
    "an array": of_objects,
    "in an object": lambda messages: {"messages": messages, "model": "m"},
    "one alone": lambda messages: messages[0] if len(messages) == 1 else messages,
    "other names": shared_gpt,
    "in parts": in_parts,
    "as of Gemini": lambda messages: in_parts(messages, "parts"),
    "with what is not read": lambda ms: [m | {"tool_calls": None, "name": "n"} for m in ms],
    "JSON": json.dumps,
    "JSON, one alone": lambda ms: json.dumps(WRITTEN["one alone"](ms), indent=2),
    "JSON, in an object": lambda messages: json.dumps({"messages": messages}),
    "JSON, other names": lambda messages: json.dumps(shared_gpt(messages)),
    "Python": repr,
    "Python, one alone": lambda messages: repr(WRITTEN["one alone"](messages)),
    "Python, in an object": lambda messages: f" { ({'conversations': messages}) }",
    "Python, other names": lambda messages: str(shared_gpt(messages)),
    "Python, a tuple": lambda messages: repr(tuple(messages)),
    "numpy": lambda messages: str(of_objects(messages)),
    "numpy, whole": lambda messages: repr(of_objects(messages)),
    "numpy, in parts": lambda messages: str(of_objects(in_parts(messages))),
}
BLUE, GREEN = [answer("Blue.")], [answer("Green.")]
SKY = "What is the sky?"


def sky(before, prompt=None):
    """A pair whose cells begin with that, and perhaps a prompt."""
    of_text = isinstance(before, str)
    cells = [before + each[0]["content"] if of_text else [*before, *each] for each in (BLUE, GREEN)]
    row = {"chosen": cells[0], "rejected": cells[1]}
    return row if prompt is None else {"prompt": prompt, **row}


#: Cells of a pair, and the prompt that is read of it.
FORMS = {
    "implicit prompt, messages": (sky(ASKED), SKY),
    "implicit prompt, several turns": (sky(LONG), FOLLOWED),
    "explicit prompt, messages": (sky([], ASKED), SKY),
    "explicit prompt of several turns": (sky([], LONG), FOLLOWED),
    "prompt as text, whole conversations": (sky(ASKED, SKY), SKY),
    "prompt as text, answers as messages": (sky([], "What?"), "What?"),
    "prompt as messages, answers as text": (sky("", LONG), FOLLOWED),
    "names before the turns": (sky(f"{FOLLOWED}\n\nAssistant: "), FOLLOWED),
    "one turn with a name": (sky(f"\n\nHuman: {SKY}\n\nAssistant: "), SKY),
    "texts that share their beginning": (sky("The sky is "), "The sky is"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cells", WRITTEN)
def test_pairs_in_every_form(form, cells):
    row, prompt = FORMS[form]
    row = {k: WRITTEN[cells](v) if isinstance(v, list) else v for k, v in row.items()}
    read = judged({"user_id": "u", **row}, NAMES)
    assert (read.prompt, read.responses, read.y) == (prompt, ("Blue.", "Green."), 1.0)


def pair(chosen, rejected="y", prompt="p"):
    return {"prompt": prompt, "chosen": chosen, "rejected": rejected}


def bare(chosen, rejected, **more):
    return {**more, "chosen": chosen, "rejected": rejected}


#: What other programs print of messages, or a part of them.
PRINTED = (
    str([answer("x")])[:-2],
    f"[{answer('x')}, ..., {answer('y')}]",
    "[{'at': datetime.date(2024, 1, 1), 'role': 'user', 'content': 'x'}]",
    "[ChatCompletionMessage(content='x', role='assistant', refusal=None)]",
    f"{answer('x')}\n{answer('y')}",
    "[Row(content='x', role='assistant')]",  # Spark
    "[{'role': assistant, 'content': What?}]",  # DuckDB
    "[ { role: 'assistant', content: 'x' } ]",  # Node
    '[{"role"=>"assistant", "content"=>"x"}]',  # Ruby
    '[{:role=>"assistant", :content=>"x"}]',
    "[object Object],[object Object]",
    "[" * 30 + str(answer("x")) + "]" * 30,
)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (bare(said("a", "x"), said("b", "y")), "do not answer the same prompt"),
        (bare(said("a"), said("a")), "do not answer the same prompt"),
        (bare("yes", "no"), "no column 'prompt', and .* do not begin"),
        (bare("the same", "the same"), "no column 'prompt', and"),
        (bare("I a", "I b", question="q"), "no column 'prompt'; .* --columns prompt=NAME"),
        (pair("I a", "I b", None), "'prompt' must be text"),
        (pair("x", prompt=[]), "'prompt' must be text"),
        (pair([*ASKED, answer("x")]), "begins with a turn"),
        (pair([answer(" ")], [answer("y")]), "'chosen' is empty"),
        (pair([{"role": "bot", "content": "x"}]), "role must be one of"),
        (pair(str([{"role": "bot", "content": "x"}])), "role must be one of"),
        (pair([{"text": "x"}]), "'role' and 'content'"),
        (pair({"text": "x"}), "'role' and 'content'"),
        (pair([answer(3)]), "content of a message must be text"),
        (pair([answer("x") | {"tool_calls": [{}]}]), "tools"),
        (pair(str([answer(None) | {"tool_calls": [1]}])), "'chosen': a turn calls tools"),
        (pair([{"from": "function_call", "value": "f"}]), "calls tools"),
        (pair([answer(None)]), "must be text, found nothing"),
        *((pair(text), "like messages that .*to_json") for text in PRINTED),
    ],
)
def test_what_is_no_pair(row, reason):
    with pytest.raises(BadRow, match=reason):
        judged({"user_id": "u", **row}, NAMES)


def test_conversations_that_part_early_are_judged_from_there():
    row = {"chosen": said("q", "a", "b", "c"), "rejected": said("q", "x", "b", "c")}
    read = judged({"user_id": "u", **row}, NAMES)
    assert read.prompt == "q"
    assert read.responses[0] == "a\n\nHuman: b\n\nAssistant: c"


def test_equal_conversations_are_a_tie_over_the_last_answer():
    row = {"chosen": said("q", "a", "b", "c"), "rejected": said("q", "a", "b", "c")}
    read = judged({"user_id": "u", **row}, NAMES)
    assert (read.prompt, read.responses, read.y) == (
        "\n\nHuman: q\n\nAssistant: a\n\nHuman: b",
        ("c", "c"),
        0.5,
    )


def test_texts_that_happen_to_be_json_stay_texts():
    row = {"user_id": "u", "prompt": '["a"]', "chosen": '[{"a": 1}]', "rejected": "[no"}
    read = judged(row)
    assert (read.prompt, *read.responses) == ('["a"]', '[{"a": 1}]', "[no")
    for text in (
        *('{"answer": 3}', "{'answer': 3}", "['a' 'b']", "[{'a': 1}]", "{", "(see above)"),
        *('{"role": "admin", "name": "Ann"}', '[{"from": "0x1", "to": "0x2", "value": 3}]'),
        *("[1] Role: 'role': is what", '{"from": "a", "to": "b"}', "array(", "Message"),
    ):
        read = judged(row | {"prompt": text, "chosen": text}, NAMES)
        assert (read.prompt, read.responses[0]) == (text, text)


def test_texts_that_are_no_messages_take_no_time():
    """Each of these takes minutes where a pattern looks at it again from every place."""
    for part in (" ", "(", "[", "Message", "'role' ", "'", "1", "array("):
        for text in (part * (100_000 // len(part)), "{'" + part * (100_000 // len(part))):
            with suppress(BadRow):
                prompt_cell(text, "prompt")


def test_parts_of_text_are_joined_and_invitations_dropped():
    parts = [{"type": "text", "text": "What "}, {"type": "text", "text": "now?"}]
    messages = [{"role": "user", "content": parts}, {"role": "assistant", "content": ""}]
    assert prompt_cell(messages, "prompt") == "What now?"
    with pytest.raises(BadRow, match="content of a message must be text"):
        prompt_cell([{"role": "user", "content": [{"type": "image"}]}], "prompt")


_TEXTS = st.lists(
    st.sampled_from(["\n", " ", "Human:", "Assistant:", "System:", "Tool", ":", "a"]), max_size=8
).map("".join) | st.text(max_size=8)
_MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": _TEXTS}
    ),
    min_size=1,
    max_size=4,
)


@given(_MESSAGES)
def test_messages_come_back_exactly(messages):
    """Whatever a message holds: no user's text can pass for a turn of somebody else."""
    assert messages_of(text_of(messages)) == messages


@given(_MESSAGES, _MESSAGES)
def test_different_prompts_are_different_texts(one, other):
    assert (text_of(one) == text_of(other)) == (one == other)


@given(_TEXTS)
def test_a_single_message_is_its_text(text):
    found = messages_of(text)
    assert len(found) > 1 or found[0]["content"] == text or text.startswith("\n\n")


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | _TEXTS,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["role", "content", "text"]), inner, max_size=3)
        ),
        max_leaves=8,
    ),
    st.recursive(_TEXTS, lambda inner: st.lists(inner, max_size=2), max_leaves=3) | _MESSAGES,
)
def test_whatever_a_cell_holds_is_read_or_refused(one, other):
    row = {"user_id": "u", "chosen": one, "rejected": other}
    for more in ({}, {"prompt": other}):
        try:
            read = judged(row | more, NAMES)
        except BadRow:
            continue
        assert all(text.strip() for text in (read.prompt, *read.responses))


@pytest.mark.parametrize("cell", [LONG, json.dumps(LONG), FOLLOWED])
def test_prompts_to_answer_may_be_messages(tmp_path, cell):
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": cell}) + "\n")
    assert list(load_prompts(str(path))) == [FOLLOWED]
    path.write_text(json.dumps({"prompt": cell, "response": "r"}) + "\n")
    assert list(load_responses(str(path))) == [(FOLLOWED, "r")]
