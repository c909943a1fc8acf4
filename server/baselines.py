"""Baselines for a model's accuracy on a public test: simple rules, and examples.

Nothing here is ever computed of users who were held out: every further figure about them would be
one more release.

Legend: R judgements of the test.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from murmuration.preference.accuracy import Accuracy
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.escaping import get_logger
from murmuration.preference.features.words import words_of

_log = get_logger("murmuration")

#: Word counts that differ by at most this share of the larger one are nearly equal.
NEAR = 0.1
MOST_SCORED = 2_000  # judgements, evenly spaced: of more, the figure would hardly change
MOST_BY_A_LANGUAGE_MODEL = 500  # which reads a few texts per second where there is no GPU
_MOST_TEXT = 280  # characters of an example that are shown

#: Rewards of R prompts with R responses.
Score = Callable[[Sequence[str], Sequence[str]], np.ndarray]


def on_public_test(judgements: Judgements, score: Score | None, most: int) -> dict[str, Any]:
    """Return ``baselines`` of the public test of a run.

    Texts that cannot be scored are no reason to lose a run that has paid for its budget: what is
    then not known is left out.
    """
    try:
        return baselines(judgements, score, most)
    except (InputError, RuntimeError) as error:  # the latter where memory runs out
        _log.warning("no examples in the report: %s", error)
        return baselines(judgements, None)


def baselines(
    judgements: Judgements, score: Score | None, most: int = MOST_SCORED
) -> dict[str, Any]:
    """The baselines for ``result.json``, beside the accuracy on a public test.

    Of the best of several, and of rankings, the first place alone counts, and its pairs are the
    preferred response with each of the others.

    - ``test_digest``: SHA-256 of the test; runs with another one cannot be compared;
    - ``kind``: of its judgements;
    - ``longer_wins``: how often the response with the most words is preferred, over judgements that
      are no ties (N responses of equally many words count 1/N); None where there are none;
    - ``near``: the model's ``accuracy`` on ``pairs`` whose word counts differ by at most
      ``within`` of the larger one, and what ``longer_wins`` comes to on these; None without a
      score, or where there are none;
    - ``start``: of a run with ``--start`` the figures of ``beside_start``; else None;
    - ``examples``: a judgement that the model is right about, one that it is wrong about (of each
      the one of median margin), and the closest of all, with rewards of the preferred response and
      of the best of the others.

    Args:
        judgements: the test.
        score: the model's rewards; None where it gives none.
        most: judgements that are scored.
    """
    result: dict[str, Any] = {
        "test_digest": _digest(judgements),
        "kind": judgements.kind,
        "longer_wins": None,
        "near": None,
        "start": None,
        "examples": [],
    }
    decided = [row for row in range(len(judgements.y_R)) if _decided(judgements, row)]
    if not decided:
        return result
    compared = [_in_order(judgements, row) for row in decided]
    words = [np.array([len(words_of(text)) for text in each.responses]) for each in compared]
    result["longer_wins"] = float(np.mean([_right(of_K) for of_K in words]))
    if score is None:
        return result
    near = [(row, other) for row, of_K in enumerate(words) for other in _near(of_K)]
    near = [near[place] for place in _spaced(len(near), most)]
    some = _spaced(len(compared), most)
    scored = sorted({row for row, _ in near} | set(some))
    rewards = dict(zip(scored, _rewards(score, [compared[row] for row in scored]), strict=True))
    if near:
        result["near"] = {
            "within": NEAR,
            "pairs": len(near),
            "accuracy": float(np.mean([_right(rewards[row][[0, k]]) for row, k in near])),
            "longer_wins": float(np.mean([_right(words[row][[0, k]]) for row, k in near])),
        }
    result["examples"] = _examples([compared[row] for row in some], [rewards[row] for row in some])
    return result


def beside_start(model: Accuracy, start: Accuracy) -> dict[str, float]:
    """The accuracy of where a model began, for ``baselines``, on the same users of a public test.

    Returns:
        ``accuracy`` over judgements and ``by_user``, of the start; how much the model's is above
        that ``by_user``, as ``gain``; and ``error``, the standard error of the gain from user to
        user, which says nothing of the noise of another run.
    """
    gain_U = model.share_U - start.share_U
    spread = float(gain_U.std(ddof=1)) if len(gain_U) > 1 else 1.0
    return {
        "accuracy": start.pooled,
        "by_user": start.by_user,
        "gain": float(gain_U.mean()),
        "error": spread / math.sqrt(len(gain_U)),
    }


@dataclass(frozen=True)
class _Asked:
    """A prompt and its responses, of which the first was preferred."""

    prompt: str
    responses: tuple[str, ...]


def _decided(judgements: Judgements, row: int) -> bool:
    """True if one response is preferred to others; a single rating prefers it to none."""
    if len(judgements.responses[row]) < 2:
        return False
    y = float(judgements.y_R[row])
    return y != 0.5 if judgements.kind == "pairs" else y == 1.0


def _in_order(judgements: Judgements, row: int) -> _Asked:
    responses = tuple(str(text) for text in judgements.responses[row])
    if judgements.y_R[row] < 0.5:
        responses = responses[::-1]
    return _Asked(str(judgements.prompts[row]), responses)


def _right(of_K: np.ndarray) -> float:
    """1 where the preferred one has the most, 1/N where N have it."""
    highest_K = of_K == of_K.max()
    return float(highest_K[0] / highest_K.sum())


def _near(words_K: np.ndarray) -> list[int]:
    """The responses that are nearly as long as the preferred one."""
    apart_K, larger_K = np.abs(words_K - words_K[0]), np.maximum(words_K, words_K[0])
    return [k for k in range(1, len(words_K)) if apart_K[k] <= NEAR * larger_K[k]]


def _spaced(count: int, most: int) -> list[int]:
    """At most so many of a range, evenly spaced, the same at every call."""
    if count <= most:
        return list(range(count))
    return np.linspace(0, count - 1, most).astype(int).tolist()


def _rewards(score: Score, compared: Sequence[_Asked]) -> list[np.ndarray]:
    prompts = [each.prompt for each in compared for _ in each.responses]
    texts = [text for each in compared for text in each.responses]
    reward_R = np.asarray(score(prompts, texts), dtype=np.float64)
    return np.split(reward_R, np.cumsum([len(each.responses) for each in compared])[:-1])


def _examples(compared: Sequence[_Asked], rewards: Sequence[np.ndarray]) -> list[dict[str, Any]]:
    """The median that is right, the median that is wrong, and that of least margin; each once."""
    best = [1 + int(reward_K[1:].argmax()) for reward_K in rewards]  # of the others
    margin_R = np.array([of_K[0] - of_K[k] for of_K, k in zip(rewards, best, strict=True)])
    order = np.argsort(margin_R, kind="stable")
    right, wrong = order[margin_R[order] > 0], order[margin_R[order] < 0]
    close = np.argsort(np.abs(margin_R), kind="stable")[:1]
    picked = {"right": right[len(right) // 2 :][:1], "wrong": wrong[len(wrong) // 2 :][:1]}
    result = []
    for name, places in {**picked, "close": close}.items():
        for at in places.tolist():
            one, other = compared[at], best[at]
            result.append(
                {
                    "kind": name,
                    "prompt": _short(one.prompt),
                    "preferred": _short(one.responses[0]),
                    "other": _short(one.responses[other]),
                    "reward_preferred": float(rewards[at][0]),
                    "reward_other": float(rewards[at][other]),
                }
            )
    return result


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MOST_TEXT else line[: _MOST_TEXT - 1].rstrip() + "…"


def _digest(judgements: Judgements) -> str:
    """SHA-256 of who preferred what, in order."""
    hashed = hashlib.sha256()
    hashed.update(judgements.start_U.astype("<i8").tobytes())
    hashed.update(judgements.y_R.astype("<f4").tobytes())
    for prompt, shown in zip(judgements.prompts, judgements.responses, strict=True):
        hashed.update(json.dumps([str(prompt), *map(str, shown)]).encode())
    if judgements.groups_R is not None:
        hashed.update(json.dumps([list(groups) for groups in judgements.groups_R]).encode())
    return hashed.hexdigest()
