"""Users' own texts of the embedded population: what somebody there would have said.

A user's texts are the answers that they preferred, in their order, as if each user had written
theirs; prompts and the other answers are left out. So the texts differ between users as tastes do,
and from the public text of `sims.population.population.Population.texts`, which has both answers
alike.
"""

from collections.abc import Iterator

from murmuration.sims.population.population import Population


def texts(population: Population, split: str) -> Iterator[dict[str, object]]:
    """Rows `user_id, text` of one of a population's splits, grouped by user."""
    for judgement in population.judgements(split):
        yield {"user_id": judgement.user_id, "text": judgement.chosen.text}


def train() -> Iterator[dict[str, object]]:
    """Texts of the default population's users; the data source
    `murmuration.population:texts_train`.
    """
    return texts(Population(), "train")


def test() -> Iterator[dict[str, object]]:
    """Texts of other users on the same topics; the data source
    `murmuration.population:texts_test`.
    """
    return texts(Population(), "test")
