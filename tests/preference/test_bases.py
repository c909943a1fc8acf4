"""From a description to what gradients are computed from; and that nobody asks for the kind."""

import ast
from functools import cache

import pytest
from rooms import ROOMS, ROOT, UNSHIPPED

from murmuration.preference.bases import KINDS, base_of
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.language.examples.judgements import TokenExamples
from murmuration.preference.linear.examples import PairExamples


def test_features_make_differences(make_rows):
    base = base_of(HashingFeatures(dimension=7).to_config())
    found = base.examples(Judgements.from_rows(make_rows([2])))
    assert isinstance(found, PairExamples)
    assert found.dimension == 7


def test_a_language_model_makes_tokens(make_rows, language_model):
    base = base_of({"kind": "language-model", "path": language_model("gpt2"), "rank": 2})
    found = base.examples(Judgements.from_rows(make_rows([2])))
    assert isinstance(found, TokenExamples)
    assert found.dimension == base.dimension


def test_an_unknown_kind():
    with pytest.raises(InputError, match="kind 'x'"):
        base_of({"kind": "x"})


#: Kinds of models, of examples, of users' data, and of what is saved.
ASKED_BY_METHODS = {
    *(kind.__name__ for kind in KINDS.values()),
    *("LanguageModel", "LanguageBase", "LanguageHead", "HashingFeatures", "EncoderFeatures"),
    *("PairExamples", "LanguageExamples", "TokenExamples", "NextTokens", "PolicyExamples"),
    *("Judgements", "UserTexts"),
    *("RewardModel", "SavedReward", "SavedLikelihood", "AnswerReward"),
}
SHIPPED = sorted(file for room in {*ROOMS} - {*UNSHIPPED} for file in (ROOT / room).rglob("*.py"))


@cache
def tree_of(file):
    return ast.parse(file.read_text(encoding="utf-8"))


def asked_kinds(tree):
    """The lines of a module's tree where it asks whether something is of one of these classes, and
    the classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked = node.args[1]
        elif isinstance(node, ast.MatchClass):
            asked = node.cls
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
            asked = node
        else:
            continue
        names = {part.split(".")[-1] for part in map(ast.unparse, ast.walk(asked))
                 if part.replace(".", "").isidentifier()}  # fmt: skip
        if found := names & ASKED_BY_METHODS:
            yield node.lineno, sorted(found)


def test_nobody_asks_of_which_kind_a_model_is():
    wrong = [
        f"{file.relative_to(ROOT)}:{line} {names}"
        for file in SHIPPED
        for line, names in asked_kinds(tree_of(file))
    ]
    assert not wrong, "\n".join(wrong)


def test_every_kind_that_is_not_asked_for_is_there():
    defined = {
        node.name
        for file in SHIPPED
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.ClassDef)
    }
    assert defined >= ASKED_BY_METHODS


@pytest.mark.parametrize(
    "code",
    [
        "isinstance(x, Judgements)",
        "isinstance(x, (int, bases.PolicyModel))",
        "isinstance(x, LanguageBase | LanguageHead)",
        "issubclass(type(x), NextTokens)",
        "type(x) is SavedReward",
        "match x:\n  case PairExamples():\n    pass",
    ],
)
def test_how_a_kind_is_asked_for(code):
    assert list(asked_kinds(ast.parse(code)))


def test_other_types_may_be_asked_for():
    code = "isinstance(x, str) or type(y) is int or len(Judgements)"
    assert not list(asked_kinds(ast.parse(code)))
