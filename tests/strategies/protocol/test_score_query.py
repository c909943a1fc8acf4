"""Requests for scores, and their answers: whatever bytes come."""

import numpy as np
import pytest
from flwr.app import ConfigRecord, RecordDict

from murmuration.strategies.protocol import score_query
from murmuration.strategies.protocol.messages import MalformedReply
from murmuration.strategies.protocol.score_query import ScoreRequest

GOOD = {"model": "/m", "user": "", "prompts": ["p", "q"], "responses": ["r", "s"]}


def record(**changes):
    entry = {name: value for name, value in (GOOD | changes).items() if value is not None}
    return RecordDict({"score": ConfigRecord(entry)})


def test_there_and_back():
    request = ScoreRequest("/m", "ann", ["p"], ["é"])
    assert ScoreRequest.of(request.to_record()) == request
    scores_R = np.array([0.1, -3.0])
    assert score_query.read_reply(score_query.reply(scores_R), 2).tolist() == scores_R.tolist()


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in GOOD),
        {"model": 1},
        {"user": b"ann"},
        {"prompts": "pq"},
        {"prompts": [1, 2]},
        {"responses": ["r"]},
        {"prompts": ["p"] * 1025, "responses": ["r"] * 1025},
        {"prompts": ["p", "p" * (1 << 22)]},
    ],
)
def test_what_is_no_request(changes):
    with pytest.raises(ValueError, match=r"scores|request"):
        ScoreRequest.of(record(**changes))
    with pytest.raises(ValueError, match="without"):
        ScoreRequest.of(RecordDict())


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"scores": ConfigRecord({"scores": [1.0]})}),
        RecordDict({"scores": ConfigRecord({"scores": [1.0, float("nan")]})}),
        RecordDict({"scores": ConfigRecord({"scores": ["a", "b"]})}),
    ],
)
def test_what_is_no_answer(content):
    with pytest.raises(MalformedReply):
        score_query.read_reply(content, 2)
