"""The memory of labels: each label is randomized once, and the result is kept.

Decisions:
- Fresh randomness on a label that was sent before would cost its privacy again. A second request, a
  restarted node, another server: all get the first answer. Other terms (ε, δ, cap) than a user's
  first ones are refused, for everybody asked.
- A label belongs to a user and an item (``preference.data.public_items``), whichever side was
  listed first. A user who judges one item several times has as many labels of it, numbered by
  occurrence. Once sent, a label stands, even if the user changes their mind: asking again reveals
  nothing about that.
- The most labels that a user may ever send is fixed when they are first asked. If they have more, a
  hash of user and item decides which are sent: labels have no part in it. Later judgements are sent
  while there is room.
- Answers are handed out when they are on disk, never before.
- A simulation with a seed needs no file: its draws are a function of seed, user, item and
  occurrence.

Legend: R judgements, U users, N labels sent.
"""

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from murmuration.client.labels.private_file import PrivateFile
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.public_items import best_places, item_ids, public_order
from murmuration.privacy.mechanisms.randomized_response import (
    LabelPromise,
    RandomizedResponse,
    ToldLabels,
    break_tie,
)
from murmuration.privacy.mechanisms.randomness import Randomness, user_key


class TermsChanged(InputError):
    """Labels that were sent under one promise are asked for under another."""


@dataclass(frozen=True, eq=False)
class Answer:
    """Randomized labels, the rows of the judgements that they belong to, (N,) int64, and the number
    of labels randomized for the first time."""

    labels: ToldLabels
    rows_N: np.ndarray
    fresh: int


@dataclass(frozen=True, kw_only=True)
class Spend:
    """The budget that one user has spent: a line of their own ledger.

    ``epsilon`` is that of all their labels together, at the promise's δ; ``labels`` the most that
    they may ever send, ``items`` those that they sent.
    """

    user_id: str
    promise: LabelPromise
    per_label: float
    labels: int
    items: tuple[str, ...]
    epsilon: float

    def to_json(self) -> dict[str, Any]:
        """The entry of a user in ``murmuration privatize --show-state --json``."""
        return {
            "user_id": self.user_id,
            "epsilon": self.promise.epsilon,
            "delta": self.promise.delta,
            "cap": self.promise.cap or None,
            "epsilon_per_label": self.per_label,
            "epsilon_spent": self.epsilon,
            "may_tell": self.labels,
            "told": len(self.items),
            "items": list(self.items),
        }


class LabelState:
    """The labels sent so far, in a file or (``path=None``) in this process."""

    def __init__(self, path: Path | None) -> None:
        self._file = PrivateFile(path) if path else None
        self._memory: dict[str, Any] = {}
        self._turn = threading.Lock()

    def answer(self, judgements: Judgements, promise: LabelPromise, source: Randomness) -> Answer:
        """Everybody's randomized labels: those sent before as they were, others by fresh draws.

        Raises:
            TermsChanged: somebody's labels were sent under another promise; nothing is returned.
            InputError: the file is damaged or cannot be written, or the labels are randomized
                already or no single answers; nothing is returned.
            ValueError: so many labels that too little of the budget is left for each.
        """
        if judgements.randomized:
            raise InputError("these labels are randomized already; give the true ones")
        asked = _Asked(judgements)
        with self._document() as document:
            users = document.setdefault("users", {})
            records = [
                users.get(user) or _opened(promise, int(given))
                for user, given in zip(judgements.user_ids, judgements.counts_U, strict=True)
            ]
            for record in records:
                _check_terms(record, promise)
            fresh = asked.fresh(records)
            if fresh:
                for (index, row), answer in zip(
                    fresh, asked.randomized(fresh, records, source), strict=True
                ):
                    records[index]["answers"][asked.names_R[row]] = answer
                users.update(
                    (user, record)
                    for user, record in zip(judgements.user_ids, records, strict=True)
                    if record["answers"]  # without answers no terms are fixed yet
                )
                if self._file is not None:
                    self._file.write(document)
        return asked.told(records, len(fresh))

    def spends(self) -> list[Spend]:
        """The spent budget of each user, in order of ids."""
        with self._document() as document:
            return [_spend(user, record) for user, record in document.get("users", {}).items()]

    @contextlib.contextmanager
    def _document(self) -> Iterator[dict[str, Any]]:
        if self._file is None:
            with self._turn:
                yield self._memory
        else:
            with self._file.locked():
                yield self._file.read()


class _Asked:
    """Judgements whose labels are asked for."""

    def __init__(self, judgements: Judgements) -> None:
        self.judgements = judgements
        self.ids_R = item_ids(judgements)
        self.rows_R = public_order(judgements, self.ids_R)
        self.names_R = self._names()

    def _names(self) -> list[str]:
        """Return each judgement's item and, from the second of one user on, which one it is."""
        names_R, last, seen = [""] * len(self.judgements), None, 0
        for index in range(len(self.judgements.user_ids)):
            for row in self._rows(index):
                item = (index, int(self.ids_R[row]))
                seen = seen + 1 if item == last else 0
                names_R[row] = f"{item[1]:016x}" + (f".{seen}" if seen else "")
                last = item
        return names_R

    def _rows(self, index: int) -> list[int]:
        start_U = self.judgements.start_U
        return self.rows_R[start_U[index] : start_U[index + 1]].tolist()

    def fresh(self, records: list[dict[str, Any]]) -> list[tuple[int, int]]:
        """User and row of each label that is to be randomized for the first time."""
        result = []
        for index, record in enumerate(records):
            answers, most = record["answers"], record["labels"]
            rows = [row for row in self._rows(index) if self.names_R[row] not in answers]
            if len(rows) > most - len(answers):
                rows = sorted(rows, key=lambda row: self._rank(index, row))[: most - len(answers)]
            result += [(index, row) for row in rows]
        return result

    def _rank(self, index: int, row: int) -> bytes:
        text = f"{self.names_R[row]} {self.judgements.user_ids[index]}"
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def randomized(
        self, fresh: list[tuple[int, int]], records: list[dict[str, Any]], source: Randomness
    ) -> list[int]:
        """Randomize fresh labels, by draws that depend only on user and label."""
        places = np.array([_place(self.names_R[row]) for _, row in fresh], dtype=np.uint64)
        users = [self.judgements.user_ids[index] for index, _ in fresh]
        keys = np.array([user_key(user) for user in users], dtype=np.uint64)
        ties = source.example_words("tie of a label", 0, keys, places).tolist()
        words = source.example_words("answer of a label", 0, keys, places)
        alike: dict[RandomizedResponse, list[int]] = {}
        for number, (index, row) in enumerate(fresh):
            choices = len(self.judgements.responses[row])
            mechanism = RandomizedResponse(records[index]["per_label"], choices)
            alike.setdefault(mechanism, []).append(number)
        answers = np.zeros(len(fresh), dtype=np.int64)
        for mechanism, numbers in alike.items():
            best = [best_places(self.judgements, fresh[number][1]) for number in numbers]
            truths = [break_tie(b, ties[number]) for b, number in zip(best, numbers, strict=True)]
            answers[numbers] = mechanism.answer(np.array(truths), words[numbers])
        return answers.tolist()

    def told(self, records: list[dict[str, Any]], fresh: int) -> Answer:
        """The stored labels of these judgements."""
        rows: list[int] = []
        answers: list[int] = []
        start = [0]
        for index, record in enumerate(records):
            known = record["answers"]
            here = [row for row in self._rows(index) if self.names_R[row] in known]
            rows += here
            answers += [known[self.names_R[row]] for row in here]
            start.append(len(rows))
        labels = ToldLabels(
            start_U=np.array(start, dtype=np.int64),
            items_N=self.ids_R[rows],
            answers_N=np.array(answers, dtype=np.int64),
            choices_N=np.array([len(self.judgements.responses[row]) for row in rows], np.int64),
            per_label_U=np.array([record["per_label"] for record in records]),
        )
        return Answer(labels, np.array(rows, dtype=np.int64), fresh)


def _opened(promise: LabelPromise, given: int) -> dict[str, Any]:
    """The initial record of a user."""
    labels = promise.most(given)
    if labels == 0:  # who has no judgements tells nothing, whatever a label of theirs would cost
        return {**_opened(promise, 1), "labels": 0}
    per_label = RandomizedResponse(promise.per_label(labels)).epsilon
    return {
        "promise": promise.to_config(),
        "labels": labels,
        "per_label": per_label,
        "answers": {},
    }


def _check_terms(record: dict[str, Any], promise: LabelPromise) -> None:
    former = LabelPromise.from_config(record["promise"])
    if former != promise:
        raise TermsChanged(
            f"labels were told once with {former}, and are not told again with {promise}: "
            "ask with the former terms"
        )


def _place(name: str) -> int:
    """64 bits that name one label of a user."""
    item, _, again = name.partition(".")
    if not again:
        return int(item, 16)
    digest = hashlib.blake2b(name.encode(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _spend(user: str, record: dict[str, Any]) -> Spend:
    promise = LabelPromise.from_config(record["promise"])
    items = tuple(sorted(record["answers"]))
    return Spend(
        user_id=user,
        promise=promise,
        per_label=record["per_label"],
        labels=record["labels"],
        items=items,
        epsilon=promise.spent(record["per_label"], len(items)),
    )
