"""Where each strategy has a guarantee, and what it says where it has none."""

import re
from pathlib import Path

import pytest

from murmuration.preference.data.rows import InputError
from murmuration.privacy.adjacency import Adjacency, Unsupported
from murmuration.strategies import registry
from murmuration.strategies.registry import check_adjacency as check


def test_every_strategy_is_in_the_matrix():
    for strategy in registry.strategies().values():
        assert strategy.adjacencies and strategy.adjacencies <= set(Adjacency)
        said = strategy.why != "it declares none"
        assert said == (strategy.adjacencies != set(Adjacency))


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("strategy", registry.strategies())
def test_check_follows_the_matrix(strategy, adjacency):
    if adjacency in registry.named(strategy).adjacencies:
        check(strategy, adjacency)
        return
    with pytest.raises(Unsupported) as caught:
        check(strategy, adjacency)
    message = str(caught.value)
    assert f"--strategy {strategy} has no guarantee under {adjacency}" in message
    # What it advises can be done.
    advice = message.split("use --adjacency ")[1].split(", or")[0]
    for other in re.findall(r"add-remove|zero-out|replace-labels|replace", advice):
        check(strategy, Adjacency(other))
    for other in message.split("strategies ")[1].split(", "):
        check(other, adjacency)


@pytest.mark.parametrize("adjacency", ["replace", "replace-labels"])
def test_els_is_refused_where_nothing_is_proved(adjacency):
    with pytest.raises(Unsupported, match="use --adjacency add-remove or zero-out"):
        check("els", Adjacency(adjacency))


def test_a_strategy_that_is_none():
    with pytest.raises(InputError, match="--strategy must be one of uls"):
        check("lottery", Adjacency.ZERO_OUT)


def test_the_documented_matrix_is_this_one():
    page = Path(__file__).parents[2] / "docs" / "explanation" / "privacy.md"
    text = page.read_text(encoding="utf-8")
    documented = {}
    table = text.split("## Which strategy under which adjacency")[1].split("##")[0]
    for line in filter(lambda line: line.startswith("|"), table.splitlines()):
        names, *cells = line.strip("|").split("|")
        for name in re.findall(r"`([a-z:-]+)`", names):
            allowed = zip(Adjacency, cells, strict=True)
            documented[name] = {a for a, cell in allowed if cell.strip() == "yes"}
    assert documented == {
        name: registry.named(name).adjacencies
        for name in registry.strategies()
        if name != "nonprivate"
    }
