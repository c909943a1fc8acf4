"""A membership game from the file to the published model: whether one more user, whatever their
rows hold, changes how others' rows are read.

Others are ordinary users whose texts begin alike and name no prompt. The canary is one of the
hostile users (`audits.hostile_users`): the one whose presence moves the exact sum of all users'
clipped gradients most, which the attacker computes beforehand. Then each trial is a whole run, from
a file with or without the canary to the model that it publishes, and the attacker projects that
model on this difference, which is all that Gaussian noise leaves to be known (Neyman and Pearson).
All users take part in the only round, so one user's effect is bounded by one clipped vector: if the
canary decides how others are read, the difference is that of many.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from murmuration.audits.auditing import DELTA, Measured, Scores, Target, Task, derived
from murmuration.audits.hostile_users import HOSTILE
from murmuration.client.app import app as client_app
from murmuration.preference.data.errors import InputError
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.reward import RewardModel
from murmuration.privacy.adjacency import Adjacency
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig

_OTHERS, _EACH, _CLIP = 40, 2, 0.5
_MOST_ROWS = 100  # of a canary: each trial reads them
_MODEL = LinearModel(HashingFeatures(dimension=257, ngrams=1, length_weight=0.0))
#: Long, so that texts with it and without it differ by vectors of other lengths.
_BEGIN = " ".join(["When I have some money left at the end of a month I like to"] * 3)


def rows_of(user: str) -> list[dict[str, str]]:
    """Valid rows of a user."""
    return [
        {
            "user_id": user,
            "chosen": f"{_BEGIN} save all of it {number}",
            "rejected": f"{_BEGIN} spend it at once {number}",
        }
        for number in range(_EACH)
    ]


def others() -> list[dict[str, str]]:
    """The rows of all users except the canary."""
    return [row for user in range(_OTHERS) for row in rows_of(f"user {user}")]


def published(folder: Path, rows: Sequence[object], epsilon: float, seed: int) -> np.ndarray:
    """θ, (D,), of the model that a run on these rows publishes.

    Raises:
        InputError: the run is refused.
    """
    data, out = _written(folder / f"{seed}.jsonl", rows), folder / f"run-{seed}"
    test = folder / "test.jsonl"
    somebody = {"user_id": "somebody else", "prompt": "p", "chosen": "yes", "rejected": "no"}
    test.write_text(json.dumps(somebody) + "\n", encoding="utf-8")
    config = RunConfig(
        data=data,
        test=str(test),
        on_bad_rows="skip",
        strategy="uls",
        epsilon=epsilon,
        delta=DELTA,
        rounds=1,
        users=_OTHERS,
        cohort=_OTHERS,
        clip_norm=_CLIP,
        optimizer="sgd",
        learning_rate=1.0,
        momentum=0.0,
        seed=seed,
        out=str(out),
    )
    run_training(config, LocalGrid(client_app, 1, config.to_run_config()), _MODEL)
    return RewardModel.load_linear(out / "model").theta_D.astype(np.float64)


def _written(path: Path, rows: Sequence[object]) -> str:
    """Write rows into a new file: nodes keep what they read of one."""
    lines = (row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return str(path)


def canaries() -> dict[str, list[object]]:
    """The rows of hostile users, by name; only of those that are read as one user."""
    users: dict[str, list[object]] = {}
    with tempfile.TemporaryDirectory() as name:
        for hostile, rows_from in HOSTILE.items():
            rows = list(rows_from(rows_of("canary")))
            try:
                path = _written(Path(name) / "rows.jsonl", [rows_of("user 0")[0], *rows])
                read = load_judgements(path, on_bad_rows="skip")
            except (InputError, ValueError, TypeError):  # what no file of JSON can hold
                continue
            if len(read.user_ids) == 2 and len(rows) < _MOST_ROWS:
                users[hostile] = rows
    return users


def moved(rows: Sequence[object]) -> np.ndarray:
    """The direction in which the exact sum of clipped gradients at zero moves a model, in clip
    norms, for a file with these rows, (D,).

    Raises:
        InputError: the file is refused.
    """
    with tempfile.TemporaryDirectory() as name:
        judgements = load_judgements(_written(Path(name) / "rows.jsonl", rows), on_bad_rows="skip")
    examples = _MODEL.examples(judgements)
    x_RD, start_U = examples.x_RD.numpy().astype(np.float64), examples.start_U.tolist()
    total_D = np.zeros(x_RD.shape[1])
    for begin, end in pairwise(start_U):
        if begin < end:
            mean_D = x_RD[begin:end].mean(axis=0) / 2.0
            total_D += mean_D / max(_CLIP, float(np.linalg.norm(mean_D)))
    return total_D


@lru_cache(maxsize=1)
def worst_canary() -> tuple[str, list[object], np.ndarray]:
    """The hostile user with the largest effect on the sum: name, rows, and effect, (D,)."""
    without_D = moved(others())
    users = canaries()
    moves = {canary: moved([*others(), *rows]) - without_D for canary, rows in users.items()}
    worst = max(moves, key=lambda canary: float(np.linalg.norm(moves[canary])))
    return worst, users[worst], moves[worst]


def audit_reader(task: Task) -> Measured:
    """Measure attacks on whole runs that test whether the worst canary is present."""
    _, rows, apart_D = worst_canary()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def score(there: bool, trial: int) -> float:
            seed = _seed(task, 2 * trial + there)
            theta_D = published(folder, [*others(), *rows * there], task.epsilon, seed)
            return float(theta_D @ apart_D)

        scores = [[score(there, n) for n in range(task.trials)] for there in (True, False)]
    return Measured.from_scores(Scores(*map(np.array, scores)), task.epsilon, task, fit=True)


def _seed(task: Task, number: int) -> int:
    source = derived(task.source, "reader", number)
    key = source.key("run")[:6] if source.seeded else os.urandom(6)
    return int.from_bytes(key, "little")


TARGETS = {
    "pipeline:reader": Target(
        "whole runs of uls, from the file on, with and without the most disturbing hostile user",
        audit_reader,
        adjacencies=frozenset((Adjacency.ADD_REMOVE,)),
        trials=200,
        epsilon=1.0,
    )
}
