"""How long features of somebody's texts take on this machine, measured on a few of them."""

import time
from dataclasses import dataclass

import numpy as np

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.embeddings import pace
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.linear.examples import distinct_texts
from murmuration.reporting.figures import duration

_TRIED = 16  # texts


@dataclass(frozen=True)
class FeatureTime:
    """Time that features of all texts take.

    Attributes:
        features: the value of ``--features``.
        texts: how many distinct ones there are.
        tried: how many of them were computed for this.
        seconds: that all of them take; 0 where all that were tried had been computed before.
    """

    features: str
    texts: int
    tried: int
    seconds: float

    def __str__(self) -> str:
        if not self.seconds:
            return (
                f"{self.features}: texts that were tried had been computed before, and were found"
            )
        return (
            f"{self.features}: about {duration(self.seconds)} for all {self.texts:,} distinct "
            f"texts on this machine, as measured on {self.tried}; once, then they are found"
        )


def feature_time(features: str, judgements: Judgements) -> FeatureTime:
    """Return how long ``--features`` take for the texts of judgements.

    Texts that were computed before are found, and do not count.

    Raises:
        InputError: there are no such features, or they cannot be loaded.
    """
    phi = feature_map(parse_features(features))
    _, prompts, responses, _ = distinct_texts(judgements, phi.uses_prompt)
    places = np.unique(np.linspace(0, len(responses) - 1, _TRIED, dtype=np.int64)).tolist()
    phi(prompts[:1], responses[:1])  # what is made once
    before, begun = pace.texts, time.monotonic()
    phi([prompts[place] for place in places], [responses[place] for place in places])
    seconds, computed = time.monotonic() - begun, pace.texts - before
    tried = computed if hasattr(phi, "path") else len(places)  # others keep nothing
    each = seconds / tried if tried else 0.0
    return FeatureTime(features, len(responses), tried, each * len(responses))
