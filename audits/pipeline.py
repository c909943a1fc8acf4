"""Audits of whole runs with canary users, from file to released model.

A run is a real one: judgements in a file, the ServerApp's training over nodes of the ClientApp,
sampler, clip, noise, ledger, saved model. Its users are canaries: each judges one pair of words
that no other user mentions, so that their gradient, far longer than the clip norm, lies in a
direction that only they use. With linear rewards the words hash to two features of their own; of a
policy see `audits.policy_pipeline`. The auditor includes each canary at random (or, where users are
replaced, chooses one of two answers at random). The attacker is

- *white-box*: sees all models that were sent to nodes and the one that was released; their
  differences give the noisy sum of each round, and that the likelihood ratio of the sampled
  mixture;
- *black-box*: sees the released model.

Two bounds from the same runs. **One run** (Steinke, Nasr and Jagielski 2023): guesses about the
canaries of one run, valid whatever the dependence between their outcomes. **Pooled**: canaries have
disjoint features, so each is a separate trial of the pair "with this user, without them", and all
trials of all runs are pooled; that assumes that the run treats directions independently, which is
what adding independent noise to each coordinate does.

Even an attacker who never errs cannot show more than a ceiling that follows from the number of
guesses or trials. Runs claim less than that, or no bound could refute them.

Legend: M canaries, T rounds, D dimensions.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flwr.app import Message

from murmuration.audits.auditing import (
    Measured,
    Scores,
    Target,
    Task,
    derived,
    one_run_bound,
    one_run_gaussian_bound,
)
from murmuration.client.app import app as client_app
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.kinds.linear import LinearModel
from murmuration.preference.kinds.model import Model
from murmuration.preference.reward import RewardModel
from murmuration.server.run import run_training
from murmuration.sims.runtimes.local import LocalGrid
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol import messages

_ROUNDS, _CANARIES, _NODES = 4, 1000, 4  # so few rounds that the last model alone is released
#: The chance to be asked in a round, and what vectors are clipped to.
SHARE, CLIP = 0.5, 0.05
_FEATURES = HashingFeatures(dimension=4097, ngrams=1, length_weight=0.0)
_MODEL = LinearModel(_FEATURES)
#: Share of the canaries about which a guess is made: half of them "in", half "out". Fixed
#: beforehand, as the bound asks for.
_GUESSED = 0.1
_DELTA = 1e-5
PROMPT = "Which?"


def log_ratio(x_N: np.ndarray, probability: float, noise: float | np.ndarray) -> np.ndarray:
    """log of (1 − q + q exp(x/σ² − 1/2σ²)): the canary's contribution of 1 was sampled, or was not.

    ``x_N`` are noisy sums in units of the clip norm; ``noise`` is σ, of all or of each.
    """
    loss_N = (x_N - 0.5) / noise**2
    if probability == 1.0:
        return loss_N
    return np.logaddexp(math.log1p(-probability), math.log(probability) + loss_N)


class Watching(LocalGrid):
    """A grid on which every model that is sent to nodes is noted, by round."""

    models: dict[int, np.ndarray]

    def push_messages(self, messages_: Iterable[Message]) -> Iterable[str]:
        """Push the messages, and record the model."""
        outgoing = list(messages_)
        for message in outgoing:
            if message.metadata.message_type.startswith("train"):
                work = messages.read_work(message.content)
                seen = vars(self).setdefault("models", {})
                seen[int(work.number("round"))] = np.array(work.arrays["theta"], dtype=np.float64)
        return super().push_messages(outgoing)


class Learner(Protocol):
    """The model of a run with canaries, and an attacker's reading of it."""

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """The two words of each of M canaries."""
        ...

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the run, beside those that all such runs share."""
        ...

    @property
    def base(self) -> Model | None:
        """The model used in place of the one that the settings name, or None."""
        ...

    def seen(self, before_D: np.ndarray, noisy_D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The observations of a round about each canary, from its model and its noisy sum in clip
        norms.

        The sum's component along each canary's own direction, (M,), and the canary's contribution
        to it if sampled, (M,), at most 1.
        """
        ...

    def released(self, folder: Path) -> tuple[np.ndarray | None, np.ndarray]:
        """θ of a saved model, (D,) float64, or None if its rounds are not used; and its preference
        for the first of each canary's words, (M,).
        """
        ...


@dataclass(frozen=True)
class LinearRewards:
    """Rewards over hashed features, of which each canary has two."""

    canaries: int = _CANARIES
    base: Model = _MODEL

    @property
    def settings(self) -> dict[str, Any]:
        """Steps of one."""
        return {"learning_rate": 1.0}

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """See `canary_words`."""
        return canary_words(self.canaries)

    def seen(self, before_D: np.ndarray, noisy_D: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Their directions are always the same, and lead down."""
        del before_D
        return -(_directions(self.pairs) @ noisy_D), np.ones(self.canaries)

    def released(self, folder: Path) -> tuple[np.ndarray, np.ndarray]:
        """θ, and differences of rewards."""
        theta_D = RewardModel.load_linear(folder).theta_D.astype(np.float64)
        return theta_D, _directions(self.pairs) @ theta_D


@dataclass(frozen=True, eq=False)
class Outcome:
    """An attacker's view of a run's canaries: which were included, and scores that grow with
    inclusion.
    """

    in_M: np.ndarray
    white_M: np.ndarray
    black_M: np.ndarray
    claimed: float

    def correct(self, score_M: np.ndarray, guesses: int) -> int:
        """The number of correct guesses: "in" for the highest scores, "out" for the lowest."""
        order = np.argsort(score_M, kind="stable")
        half = guesses // 2
        return int(self.in_M[order[-half:]].sum() + (~self.in_M[order[:half]]).sum())


@lru_cache(maxsize=4)
def canary_words(canaries: int) -> tuple[tuple[str, str], ...]:
    """Pairs of words, all of which hash to features of their own."""
    candidates = [f"canary{number}" for number in range(8 * canaries)]
    buckets = np.abs(_FEATURES([""] * len(candidates), candidates)).argmax(axis=1)
    _, first = np.unique(buckets, return_index=True)
    if len(first) < 2 * canaries:
        raise ValueError(f"{canaries} canaries need more features than {_FEATURES.dimension}")
    words = [candidates[place] for place in np.sort(first)[: 2 * canaries]]
    return tuple(zip(words[::2], words[1::2], strict=True))


def _write(path: Path, rows: list[dict[str, str]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def row_of(user: str, chosen: str, rejected: str) -> dict[str, str]:
    """A user's judgement."""
    return {"user_id": user, "prompt": PROMPT, "chosen": chosen, "rejected": rejected}


def run_canaries(
    task: Task,
    number: int,
    grid: Callable[..., Watching] = Watching,
    *,
    learner: Learner = LinearRewards(),
) -> Outcome:
    """One run with canaries; ``number`` is its place among the runs of the audit.

    ``grid`` may be one with a fault.
    """
    source, pairs = derived(task.source, "pipeline", number), learner.pairs
    in_M = source.stream("canaries in").random(len(pairs)) < 0.5
    replaced = task.adjacency.vectors_changed == 2
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [
            row_of(f"user {index}", *(pair if there else pair[::-1]))
            for index, (pair, there) in enumerate(zip(pairs, in_M, strict=True))
            if there or replaced
        ]
        config = RunConfig(
            data=_write(folder / "canaries.jsonl", rows),
            test=_write(folder / "test.jsonl", [row_of("somebody", "yes", "no")]),
            strategy="uls",
            epsilon=task.epsilon,
            delta=_DELTA,
            adjacency=task.adjacency.value,
            rounds=_ROUNDS,
            cohort=round(SHARE * len(pairs)),
            users=len(pairs),
            clip_norm=CLIP,
            optimizer="sgd",
            momentum=0.0,
            seed=int.from_bytes(os.urandom(6), "little")
            if not source.seeded
            else int.from_bytes(source.key("run")[:6], "little"),
            out=str(folder / "run"),
            **learner.settings,
        )
        nodes = grid(client_app, _NODES, config.to_run_config())
        result = run_training(config, nodes, learner.base)
        metrics = (folder / "run/metrics.jsonl").read_text(encoding="utf-8")
        lines = [json.loads(line) for line in metrics.splitlines()]
        final_D, black_M = learner.released(folder / "run/model")
    white_M = np.zeros(len(pairs))
    if final_D is None:
        return Outcome(in_M, white_M, black_M, float(result["epsilon"]))  # type: ignore[arg-type]
    thetas = [nodes.models[line["round"]] for line in lines] + [final_D]
    sigma = float(result["noise_multiplier"])  # type: ignore[arg-type]
    for line, before_D, after_D in zip(lines, thetas[:-1], thetas[1:], strict=True):
        noisy_D = (before_D - after_D) / line["learning_rate"] * config.cohort / CLIP
        x_M, length_M = learner.seen(before_D, noisy_D)
        # A contribution of r with noise σ tells as much as one of 1 with σ/r.
        x_M, noise_M = x_M / length_M, sigma / length_M
        white_M += log_ratio(x_M, SHARE, noise_M)
        if replaced:
            white_M -= log_ratio(-x_M, SHARE, noise_M)
    return Outcome(in_M, white_M, black_M, float(result["epsilon"]))  # type: ignore[arg-type]


@lru_cache(maxsize=1)
def _directions(pairs: tuple[tuple[str, str], ...]) -> np.ndarray:
    """The unit vector along which each canary pulls the model, (M, D)."""
    sides = [_FEATURES([""] * len(pairs), [pair[side] for pair in pairs]) for side in (0, 1)]
    x_MD = (sides[0] - sides[1]).astype(np.float64)
    return x_MD / np.linalg.norm(x_MD, axis=1, keepdims=True)


@lru_cache(maxsize=8)
def _runs(task: Task) -> tuple[Outcome, ...]:
    """All runs needed for the task's number of trials."""
    return tuple(run_canaries(task, n) for n in range(max(1, 2 * task.trials // _CANARIES)))


def _scores(outcome: Outcome, white: bool) -> np.ndarray:
    return outcome.white_M if white else outcome.black_M


def pooled(task: Task, outcomes: Iterable[Outcome], *, white: bool) -> Measured:
    """The bound from all canaries of all runs."""
    outcomes = list(outcomes)
    in_N = np.concatenate([outcome.in_M for outcome in outcomes])
    score_N = np.concatenate([_scores(outcome, white) for outcome in outcomes])
    claimed = max(outcome.claimed for outcome in outcomes)
    return Measured.from_scores(
        Scores(score_N[in_N], score_N[~in_N]), claimed, task, delta=_DELTA, fit=True
    )


def guesses_about(canaries: int) -> int:
    """The number of guesses about the canaries of one run."""
    return int(_GUESSED * canaries)


def one_run(task: Task, outcome: Outcome, *, white: bool) -> Measured:
    """The bound from the guesses about one run."""
    canaries = len(outcome.in_M)
    guesses = guesses_about(canaries)
    correct = outcome.correct(_scores(outcome, white), guesses)
    terms = {"delta": _DELTA, "confidence": task.confidence}
    lower = one_run_bound(correct, guesses, canaries, **terms)
    fit = one_run_gaussian_bound(correct, guesses, canaries, **terms)
    return Measured(outcome.claimed, lower, canaries, _DELTA, fit)


def _audit_pooled(task: Task, *, white: bool) -> Measured:
    return pooled(task, _runs(task), white=white)


def _audit_one(task: Task, *, white: bool) -> Measured:
    return one_run(task, _runs(task)[0], white=white)


#: Of which an attacker who never errs shows 6.85 by all trials, 2.99 by the guesses of one run.
_TRIALS, _EPSILON, ONE_RUN_EPSILON = 10_000, 4.0, 2.0
TARGETS = {
    "pipeline": Target(
        "whole runs of uls with canary users, all models seen, trials pooled",
        partial(_audit_pooled, white=True),
        trials=_TRIALS,
        epsilon=_EPSILON,
    ),
    "pipeline:black-box": Target(
        "the same, only the released model seen",
        partial(_audit_pooled, white=False),
        trials=_TRIALS,
        epsilon=_EPSILON,
    ),
    "pipeline:one-run": Target(
        "one whole run with 1,000 canary users, all models seen",
        partial(_audit_one, white=True),
        trials=_CANARIES // 2,
        epsilon=ONE_RUN_EPSILON,
    ),
    "pipeline:one-run:black-box": Target(
        "the same, only the released model seen",
        partial(_audit_one, white=False),
        trials=_CANARIES // 2,
        epsilon=ONE_RUN_EPSILON,
    ),
}
