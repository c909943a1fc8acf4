"""How an owner's own program asks their agent which responses they would like: "score for me".

A request names a model that the owner's policy lists, a user, and texts; the answer is a score for
each, by that user's reward as far as the agent tells it (``client.agent.own_scores``). Our
ClientApp forwards no such message; one that a server ships could.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from murmuration.strategies.protocol.messages import MalformedReply

#: The kind of the query.
QUERY = "query.score"
#: Texts of a request, and characters in all: what an agent computes before it answers others.
MOST_TEXTS, MOST_CHARACTERS = 1024, 1 << 22


@dataclass(frozen=True)
class ScoreRequest:
    """Whose reward by which model, and R prompts with R responses.

    ``user`` is an id, or empty where the agent has one user.
    """

    model: str
    user: str
    prompts: Sequence[str]
    responses: Sequence[str]

    def to_record(self) -> RecordDict:
        """As it travels."""
        texts = {"prompts": [*self.prompts], "responses": [*self.responses]}
        return RecordDict(
            {"score": ConfigRecord({"model": self.model, "user": self.user, **texts})}
        )

    @classmethod
    def of(cls, content: RecordDict) -> "ScoreRequest":
        """Return a request; ValueError where it is none, or has too many texts."""
        try:
            record = content.config_records["score"]
            model, user = record["model"], record["user"]
            prompts, responses = record["prompts"], record["responses"]
        except KeyError as error:
            raise ValueError(f"a request for scores without {error}") from None
        if not (isinstance(model, str) and isinstance(user, str)):
            raise ValueError("a request for scores names a model and a user")
        if not (isinstance(prompts, list) and isinstance(responses, list)):
            raise ValueError("a request for scores has prompts and responses")
        texts = [text for text in (*prompts, *responses) if isinstance(text, str)]
        if len(texts) < len(prompts) + len(responses) or len(prompts) != len(responses):
            raise ValueError("a request for scores has equally many prompts and responses, of text")
        if len(prompts) > MOST_TEXTS or sum(map(len, texts)) > MOST_CHARACTERS:
            raise ValueError(
                f"more than {MOST_TEXTS:,} responses or {MOST_CHARACTERS:,} characters in a request"
            )
        return cls(model, user, texts[: len(prompts)], texts[len(prompts) :])


def reply(scores_R: np.ndarray) -> RecordDict:
    """An agent's answer: R scores."""
    scores = [float(score) for score in scores_R]
    return RecordDict({"scores": ConfigRecord({"scores": scores})})


def read_reply(content: RecordDict, texts: int) -> np.ndarray:
    """So many scores, (R,) float64; MalformedReply for anything else."""
    try:
        scores_R = np.array(content.config_records["scores"]["scores"], dtype=np.float64)
    except Exception as error:  # another process's bytes can fail to decode in any way
        raise MalformedReply(f"no scores: {error!r}") from None
    if scores_R.shape != (texts,) or not np.isfinite(scores_R).all():
        raise MalformedReply(f"{texts} finite scores were asked for")
    return scores_R
