"""What a model's accuracy is worth: rules that know nothing, and examples, on the public test only.

Nothing here is ever computed of users who were held out: every further figure about them would be
one more release.

Legend: R judgements of the test.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from murmuration.preference.data.judgements import InputError, Judgements, OnBadRows
from murmuration.preference.data.loading import load_data
from murmuration.server.config import RunConfig

_log = logging.getLogger("murmuration")

#: Word counts that differ by at most this share of the larger one are nearly equal.
NEAR = 0.1
_MOST_SCORED = 2_000  # pairs, evenly spaced: of more, the figure would hardly change
_MOST_TEXT = 280  # characters of an example that are shown

#: Rewards of R prompts with R responses.
Score = Callable[[Sequence[str], Sequence[str]], np.ndarray]


def on_public_test(config: RunConfig, score: Score | None) -> dict[str, Any] | None:
    """``baselines`` of the public test of a run; None where it has none with preferences.

    Texts that cannot be scored, or a test that cannot be read a second time, are no reason to lose
    a run that has paid for its budget: what is then not known is left out.
    """
    if not config.test or config.task not in ("reward", "policy"):
        return None
    try:
        judgements = _read(config)
    except (InputError, OSError) as error:
        _log.warning("no baselines: %s", error)
        return None
    if judgements is None:
        return None
    try:
        return baselines(judgements, score)
    except InputError as error:
        _log.warning("no examples in the report: %s", error)
        return baselines(judgements, None)


def _read(config: RunConfig) -> Judgements | None:
    skip: OnBadRows = "skip" if config.on_bad_rows == "skip" else "refuse"
    schema = replace(config.schema, labels="true")
    data = load_data(config.task, config.test, config.columns, skip, schema)
    return data if isinstance(data, Judgements) else None


def baselines(judgements: Judgements, score: Score | None) -> dict[str, Any]:
    """What stands in ``result.json`` beside the accuracy on a public test.

    - ``test_digest``: SHA-256 of the test; runs with another one cannot be compared;
    - ``longer_wins``: how often the response with more words is preferred, over pairs that are no
      ties (two of equally many words count half); None where there are no pairs;
    - ``near``: the model's ``accuracy`` on ``pairs`` whose word counts differ by at most
      ``within`` of the larger one, and what ``longer_wins`` comes to on these; None without a
      score, or where there are none;
    - ``examples``: a pair that the model is right about, one that it is wrong about (of each the
      one of median margin), and the closest of all, with their rewards.

    Args:
        judgements: the test.
        score: the model's rewards; None where it gives none.
    """
    found: dict[str, Any] = {
        "test_digest": _digest(judgements),
        "longer_wins": None,
        "near": None,
        "examples": [],
    }
    if judgements.kind != "pairs":
        return found
    decided_R = np.flatnonzero(judgements.y_R != 0.5)
    if not len(decided_R):
        return found
    pairs = [_pair(judgements, row) for row in decided_R.tolist()]
    words_R2 = np.array([[len(a.split()), len(b.split())] for _, a, b in pairs])
    right_R = _right(words_R2)
    found["longer_wins"] = float(right_R.mean())
    if score is None:
        return found
    apart_R = np.abs(words_R2[:, 0] - words_R2[:, 1])
    near = _spaced(np.flatnonzero(apart_R <= NEAR * words_R2.max(axis=1)))
    if len(near):
        found["near"] = {
            "within": NEAR,
            "pairs": len(near),
            "accuracy": float(_right(_rewards(score, pairs, near)).mean()),
            "longer_wins": float(right_R[near].mean()),
        }
    some = _spaced(np.arange(len(pairs)))
    found["examples"] = _examples(pairs, some, _rewards(score, pairs, some))
    return found


def _pair(judgements: Judgements, row: int) -> tuple[str, str, str]:
    """Prompt, what was preferred, what was not."""
    first, second = judgements.responses[row]
    if judgements.y_R[row] < 0.5:
        first, second = second, first
    return str(judgements.prompts[row]), str(first), str(second)


def _right(of_R2: np.ndarray) -> np.ndarray:
    """1 where the preferred one has more, half where both have the same."""
    return (np.sign(of_R2[:, 0] - of_R2[:, 1]) + 1.0) / 2.0


def _spaced(rows: np.ndarray) -> np.ndarray:
    """At most ``_MOST_SCORED`` of them, evenly spaced, the same at every call."""
    if len(rows) <= _MOST_SCORED:
        return rows
    return rows[np.linspace(0, len(rows) - 1, _MOST_SCORED).astype(int)]


def _rewards(score: Score, pairs: list[tuple[str, str, str]], rows: np.ndarray) -> np.ndarray:
    chosen = [pairs[row] for row in rows.tolist()]
    prompts = [prompt for prompt, _, _ in chosen]
    sides = [score(prompts, [pair[side] for pair in chosen]) for side in (1, 2)]
    return np.stack([np.asarray(side, dtype=np.float64) for side in sides], axis=1)


def _examples(
    pairs: list[tuple[str, str, str]], rows: np.ndarray, reward_R2: np.ndarray
) -> list[dict[str, Any]]:
    """The median right pair, the median wrong one, and the one of least margin; each once."""
    margin_R = reward_R2[:, 0] - reward_R2[:, 1]
    order = np.argsort(margin_R, kind="stable")
    right, wrong = order[margin_R[order] > 0], order[margin_R[order] < 0]
    close = np.argsort(np.abs(margin_R), kind="stable")[:1]
    picked = {"right": right[len(right) // 2 :][:1], "wrong": wrong[len(wrong) // 2 :][:1]}
    found = []
    for name, places in {**picked, "close": close}.items():
        for at in places.tolist():
            prompt, preferred, other = (_short(text) for text in pairs[rows[at]])
            found.append(
                {
                    "kind": name,
                    "prompt": prompt,
                    "preferred": preferred,
                    "other": other,
                    "reward_preferred": float(reward_R2[at, 0]),
                    "reward_other": float(reward_R2[at, 1]),
                }
            )
    return found


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
