"""Prompts to be answered by models: of the embedded population, of a list of our own, or of a file
or other source.

The list is `murmuration.questions`: 300 debatable questions, written for this package and in no
data set that we know of; in an order without meaning, so that the first few are as varied as all.
"""

from itertools import islice
from pathlib import Path

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_prompts
from murmuration.sims.population.population import Population

#: Topics by what they are called here, as splits of the population.
TOPICS = {"seen": "test", "unseen": "unseen-topics"}
PREFIX = "population:"
NAMES = tuple(PREFIX + topics for topics in TOPICS)
#: Name of the list of our own.
QUESTIONS = "murmuration.questions"
_USUAL = 2000  # of the population's


def questions() -> list[str]:
    """Return the 300 debatable questions that come with the package."""
    text = Path(__file__).with_name("questions.txt").read_text(encoding="utf-8")
    return text.splitlines()


def is_public(named: str) -> bool:
    """True if a source's prompts come with the package, and so are public."""
    return named == QUESTIONS or named.startswith(PREFIX)


def prompts_of(named: str, limit: int | None = None, seed: int = 0) -> list[str]:
    """Prompts of a source, in its order.

    Args:
        named: one of `NAMES`, for fresh prompts of the population, `QUESTIONS`, or a source as of
            `load_prompts`.
        limit: only the first so many; if not given 2,000 of the population and all of others.
        seed: of the population's.

    Raises:
        InputError: there is no such source, or none in it; names `--prompts`.
    """
    if named.startswith(PREFIX):
        if named not in NAMES:
            raise InputError(f"--prompts {named}: there is only {' or '.join(NAMES)}")
        split = TOPICS[named.removeprefix(PREFIX)]
        return list(Population().prompts(split, limit or _USUAL, seed))
    if named == QUESTIONS:
        return questions()[:limit]
    if named.isdecimal():
        raise InputError(
            f"--prompts {named}: names where prompts are from; how many is --limit {named}"
        )
    try:
        result = list(islice(load_prompts(named), limit))
    except InputError as error:
        raise InputError(f"--prompts {error}") from None
    if not result:
        raise InputError(f"--prompts {named} is empty")
    return result
