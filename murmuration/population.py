"""The embedded population, to name as a source of data: ``--data murmuration.population:train``."""

from murmuration.sims.population.population import test, train, unseen_topics
from murmuration.sims.population.texts import test as texts_test
from murmuration.sims.population.texts import train as texts_train

__all__ = ["test", "texts_test", "texts_train", "train", "unseen_topics"]
