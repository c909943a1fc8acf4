"""Public functions say what they take, give and refuse, and their examples do what they show."""

import doctest
import inspect
from pathlib import Path

import pytest

import murmuration

CLASSES = [name for name in murmuration.__all__ if inspect.isclass(getattr(murmuration, name))]
FUNCTIONS = [name for name in murmuration.__all__ if inspect.isfunction(getattr(murmuration, name))]
OF_MODELS = {"align", "respond", "reward_function", "score", "winrate"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_are_typed(name):
    signature = inspect.signature(getattr(murmuration, name))
    given = {p.name for p in signature.parameters.values() if p.annotation is p.empty}
    assert not given
    assert signature.return_annotation is not signature.empty
    assert "Any" not in {str(p.annotation) for p in signature.parameters.values()}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "online"])
def test_docstrings_are_whole(name):
    text = inspect.getdoc(getattr(murmuration, name)) or ""
    for part in ("Args:", "Returns:", "Raises:", ">>> "):
        assert part in text, part
    for parameter in inspect.signature(getattr(murmuration, name)).parameters:
        assert parameter in text.split("Args:")[1], parameter


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "online"])
def test_examples_do_what_they_show(name, tmp_path, monkeypatch, capsys, request):
    monkeypatch.chdir(tmp_path)
    if name != "plan":
        request.getfixturevalue("quick_runs")
    if name in OF_MODELS:
        crowd = request.getfixturevalue("crowd")
        murmuration.train(crowd, epsilon=2, delta=1e-3, rounds=2, cohort=10, out="runs/reward")
    if name in OF_MODELS - {"score"}:
        Path("tiny").symlink_to(request.getfixturevalue("language_model")("llama"))
    function = getattr(murmuration, name)
    for example in doctest.DocTestFinder().find(function, name, globs={}):
        result = doctest.DocTestRunner().run(example, clear_globs=True)
        assert result.attempted > 0
        assert result.failed == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", CLASSES)
def test_examples_of_classes_do_what_they_show(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for example in doctest.DocTestFinder().find(getattr(murmuration, name), name, globs={}):
        result = doctest.DocTestRunner().run(example, clear_globs=True)
        assert result.failed == 0, capsys.readouterr().out
