"""What a Python caller sees names arguments and rows: no option, and no file that we wrote."""

import ast
import inspect
import json
import pickle
import re
import warnings
from pathlib import Path

import pandas
import pytest

import murmuration as mm
from murmuration.preference.data.errors import InputError
from murmuration.strategies.settings.catalogue import DECLARED, of_simulations
from murmuration.strategies.settings.from_python import in_python

SMALL = {"epsilon": 0.5, "delta": 1e-3, "rounds": 2, "cohort": 10, "seed": 1}
PAIR = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet on it."}
VOTES = [{"voter": f"v{n}", "chosen": "save", "rejected": "spend"} for n in range(400)]
pytestmark = pytest.mark.usefixtures("quick_runs")


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ("name it with --user-column NAME. Or", 'name it with user_column="NAME". Or'),
        ("--columns winner=NAME", 'columns="winner=NAME"'),
        (
            "--columns response_a=NAME,winner=who.name: no",
            'columns="response_a=NAME,winner=who.name": no',
        ),
        ("--on-bad-rows skip, or", 'on_bad_rows="skip", or'),
        ("--one-user-per-row counts each", "one_user_per_row=True counts each"),
        ("(--adjacency zero-out).", '(adjacency="zero-out").'),
        ("with --base, --train head", 'with base, train="head"'),
        ("--sampling all needs --users", 'sampling="all" needs users'),
        ("--heldout 0: nobody", "heldout=0: nobody"),
        ("--delta n^-1.1 needs", 'delta="n^-1.1" needs'),
        ("--scale 1..5 says", 'scale="1..5" says'),
        ("--rounds must be at least 1; got 0", "rounds must be at least 1; got 0"),
        ("as in --grid clip_norm=0.05,0.1", 'as in grid={"clip_norm": [0.05, 0.1]}'),
        # Whole commands, and what users wrote, stay as they are.
        (
            "continue with: murmuration run --resume --out /a/b",
            "continue with: murmuration run --resume --out /a/b",
        ),
        ("pip install --no-deps llm", "pip install --no-deps llm"),
        ("murmuration data FILE --split-users 0.2", "murmuration data FILE --split-users 0.2"),
        ("label '--yes' is none", "label '--yes' is none"),
        ("a--b -- c", "a--b -- c"),
    ],
)
def test_options_become_arguments(options, arguments):
    assert in_python(options) == arguments
    assert in_python(arguments) == arguments


#: What no Python function does.
COMMAND = r"(murmuration \w+|pip install|ray start|flwr)[^;,]*"


def texts_of_errors():
    """Yield what the code that Python can reach says with an option in it."""
    root = Path(mm.__file__).resolve().parents[1]
    for room in ("preference", "strategies", "server", "sims", "murmuration", "alignment"):
        for file in (root / room).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise):
                    yield from filter(re.compile("--[a-z]").search, whole_texts(node))


def whole_texts(node):
    """Yield the texts in a statement, each with a path for what stands in braces."""
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "/x" for part in node.values)
        yield "".join(map(str, parts))
    elif isinstance(node, ast.Constant):
        yield str(node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from whole_texts(child)


def test_no_error_that_the_code_has_keeps_an_option():
    texts = list(texts_of_errors())
    assert len(texts) > 200
    left = [text for text in texts if re.search(r"--[a-z]", re.sub(COMMAND, "", in_python(text)))]
    assert left == []


BAD_ROWS = {
    "nobody's": {key: PAIR[key] for key in PAIR},
    "no text": {"user_id": "u", **PAIR, "chosen": 3},
    "unclear sides": {"user_id": "u", "response_a": "a", "response_b": "b"},
    "two users": {"annotator": "a", "worker": "b", **PAIR},
    "a number for a winner": {
        "user_id": "u",
        "prompt": "p",
        "response_a": "a",
        "response_b": "b",
        "winner": 3,
    },
    "rated": {"user_id": "u", "prompt": "p", "completion": "c", "label": 4},
    "no row": 3,
}
CALLS = {
    "train": lambda rows, out: mm.train(rows, out=out, **SMALL),
    "test": lambda rows, out: mm.train(good(), test=rows, out=out, **SMALL),
    "survey": lambda rows, out: mm.survey(rows, out=out, epsilon=1, delta=1e-3),
    "rank": lambda rows, out: mm.rank(rows, ["a", "b"], out=out, epsilon=1, delta=1e-3),
    "tune": lambda rows, out: mm.tune(rows, grid={"clip_norm": [1.0, 2.0]}, out=out, rounds=2),
    "compare": lambda rows, out: mm.compare("uls", 1, data=rows, out=out, seeds=1, rounds=2),
    "privatize": lambda rows, out: mm.privatize(rows, 1.0, state=f"{out}.s", out=f"{out}.jsonl"),
    "accuracy": lambda rows, out: model().accuracy(rows),
}


def good(users=40):
    return [{"user_id": f"user {n}", **PAIR} for n in range(users)]


def model():
    from murmuration.preference.features.hashing import HashingFeatures

    features = HashingFeatures()
    return mm.RewardModel([0.0] * features.dimension, features)


def seen_by(call):
    """The error, and all that a caller reads: with it those that led to it, and warnings."""
    error = None
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        try:
            call()
        except Exception as raised:
            error = raised
    led, texts = error, [str(note.message) for note in notes]
    while led is not None:
        texts.append(str(led))
        led = led.__cause__ or led.__context__
    return error, "\n".join(texts)


@pytest.mark.parametrize("what", BAD_ROWS)
@pytest.mark.parametrize("function", [name for name in CALLS if name != "accuracy"])
def test_bad_rows_are_named_by_argument_and_number(function, what, tmp_path):
    rows = [*good(3), BAD_ROWS[what], *good(3)]
    error, text = seen_by(lambda: CALLS[function](rows, tmp_path / "r"))
    assert isinstance(error, InputError)
    assert re.match(r"(uls: )?(data|test), row \d: ", str(error)), text
    if function not in ("rank", "survey"):  # these have items, or read no prompt
        assert ", row 4: " in str(error)
    assert not re.search(r"--[a-z]|jsonl|/tmp|tmp", text), text
    assert not (tmp_path / "r").exists()


BAD_SETTINGS = {
    "adjacency": "replace-labels",
    "base_privacy": "public",
    "user_passes": "shared",
    "clip_norm": -1.0,
    "cohort": 10_000,
    "columns": {"chosen": "better", "rejected": "better"},
    "delta": 2.0,
    "disjoint": True,
    "estimator": "mle",
    "features": "nowhere",
    "format": "unheard-of",
    "heldout": 1.5,
    "heldout_epsilon": 9.0,
    "kind": "top-1",
    "label_cap": 3,
    "loss": "dpo",
    "model": "plackett-luce",
    "noise": "distributed",
    "refresh": 2,
    "responses": 1,
    "sampling": "blt",
    "scale": "5",
    "strategy": "label-moment",
    "task": "policy",
    "topics": "a",
    "train": "head",
    "user_column": "nowhere",
    "variant": "published",
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
@pytest.mark.parametrize("function", ["train", "tune", "compare"])
def test_bad_settings_are_named_as_arguments(function, name, tmp_path):
    settings = {**{key: SMALL[key] for key in ("delta", "rounds")}, name: BAD_SETTINGS[name]}
    more = {
        "train": {},
        "tune": {"grid": {"learning_rate": [1.0, 2.0]}},
        "compare": {"seeds": 1, "epsilon": 1},
    }[function]
    call = getattr(mm, function)
    _, text = seen_by(lambda: call(data=good(), out=tmp_path / "r", **more, **settings))
    assert not re.search(r"--[a-z]|jsonl|/tmp", text.replace(str(tmp_path / "r"), "")), text


def test_each_function_speaks_of_its_arguments(tmp_path):
    calls = [
        lambda: mm.rank(VOTES, epsilon=1),
        lambda: mm.rank(VOTES, ["save", "spend"], by="topic"),
        lambda: mm.tune(good()),
        lambda: mm.tune(good(), grid={"epsilon": [1, 2]}),
        lambda: mm.tune(resume=True),
        lambda: mm.plan(epsilon=3),
        lambda: mm.plan(epsilon=3, delta=1e-5, rounds=1, cohort=9, users=5),
        lambda: mm.data(good(), epsilon=-1),
        lambda: mm.data("nowhere.jsonl"),
        lambda: mm.privatize(good(), 1.0, state="s", out="a.txt"),
        lambda: mm.respond(tmp_path, prompts="nowhere.jsonl"),
        lambda: mm.align(tmp_path, out=tmp_path / "o"),
        lambda: mm.survey(good(), strategy="uls"),
    ]
    for call in calls:
        _, text = seen_by(call)
        assert not re.search(r"--[a-z]", text), text


FORMS = {
    "frame": pandas.DataFrame,
    "rows": list,
    "path": lambda rows: written(rows),
}


def written(rows):
    path = Path("votes.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_named_by_a_mapping_and_the_users_by_itself(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"voter": row["user_id"], "What, now?": row["prompt"], "good": row["chosen"], "bad": "x"}
        for row in good()
    ]
    columns = {"prompt": "What, now?", "chosen": "good", "rejected": "bad"}
    data = FORMS[form](rows)
    summary = mm.data(data, columns=columns, user_column="voter")
    assert len(summary.judgements.user_ids) == 40
    given = {"columns": columns, "user_column": "voter"}
    run = mm.train(data, out="r", **given, **SMALL)
    assert run.result["rounds"] == 2
    assert mm.train(out="r", resume=True) == run
    assert run.model.accuracy(data, columns={**columns, "user_id": "voter"}).by_user >= 0
    whole, few = {**columns, "user_id": "voter"}, {"seeds": 1, "rounds": 2, "users": 32}
    assert len(mm.compare("uls", 1, data=data, out="c", columns=whole, **few)) == 1
    best = mm.tune(
        data,
        grid={"clip_norm": [1.0, 2.0]},
        expected_runs=1.5,
        rounds=2,
        users=32,
        out="t",
        **given,
    )
    assert best.promise.private
    assert mm.privatize(data, 1.0, state="s", out="o.jsonl", **given).users == 40
    assert mm.survey(data, out="s2", epsilon=9, delta=1e-3, users=40, **given).release.users > 0


@pytest.mark.parametrize("form", FORMS)
def test_votes_name_their_users_column(form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    votes = FORMS[form](VOTES)
    board = mm.rank(votes, ["save", "spend"], user_column="voter", epsilon=1, out="b").board
    assert board.items[board.order[0]] == "save"


def test_a_users_column_beside_another_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"^user_column 'b' must be the name"):
        mm.train(good(), columns={"user_id": "a"}, user_column="b", out=tmp_path / "r")


def test_signature_and_help_have_each_setting_of_a_run():
    signature, text = inspect.signature(mm.train), inspect.getdoc(mm.train)
    for field in of_simulations():
        assert field.name in signature.parameters
        if field.name not in ("data", "test", "out", "resume"):
            assert signature.parameters[field.name].default == field.default
            assert f"    {field.name}: " in text, field.name
    assert "min_nodes" not in signature.parameters  # of deployments
    assert not re.search(r"--[a-z]", re.sub(COMMAND, "", text))


def test_a_fixed_strategy_has_its_own_settings_alone():
    board = inspect.signature(mm.rank).parameters
    assert {"group_size", "epsilon", "columns", "user_column"} <= board.keys()
    assert not {"variant", "learning_rate", "topics", "rounds"} & board.keys()


def test_a_public_function_is_found_again_by_its_name():
    for name in ("train", "plan", "score"):
        assert pickle.loads(pickle.dumps(getattr(mm, name))) is getattr(mm, name)


def test_commands_speak_of_options(cli, crowd, tmp_path):
    _, _, lines = cli("run", "--data", crowd, "--out", tmp_path / "r", "--epsilon", 0)
    assert lines[-1].startswith("error: --epsilon must be")
    _, _, lines = cli("rank", "--data", crowd, "--out", tmp_path / "r")
    assert "--items" in lines[-1]


def test_declared_settings_are_those_of_a_config():
    from murmuration.strategies.config import SETTINGS

    assert {**DECLARED} == SETTINGS
