"""Prompts to be answered by models: of the embedded population, or of a file or other source."""

from itertools import islice

from murmuration.preference.data.loading import load_prompts
from murmuration.preference.data.rows import InputError
from murmuration.sims.population.population import Population

#: Topics by what they are called here, as splits of the population.
TOPICS = {"seen": "test", "unseen": "unseen-topics"}
PREFIX = "population:"
NAMES = tuple(PREFIX + topics for topics in TOPICS)
_USUAL = 2000  # of the population's


def prompts_of(named: str, limit: int | None = None, seed: int = 0) -> list[str]:
    """Prompts of a source, in its order.

    Args:
        named: one of `NAMES`, for fresh prompts of the population, or a source as of
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
