"""The embedded population, to name as a source of data: ``--data murmuration.population:train``."""

from murmuration.sims.population.population import test, texts_test, texts_train, train

__all__ = ["test", "texts_test", "texts_train", "train"]
