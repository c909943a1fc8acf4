"""Labels that leave the user randomized: what the server asks, and what a node answers.

One message to each node. The answer holds, for every judgement of the asked users, its public item
and the user's randomized label, 10 bytes in all, and for every user the ε of each label. How likely
an answer is false follows from these, so the channel travels with the labels. A node refuses a
request that does not name ``replace-labels``: prompts, responses and a user's number of judgements
are not protected. A node's labels, and that each is released once, are in ``client.labels.memory``.

    content = request(promise, asked)          # to each node
    labels = read_reply(reply.content, users)
    check_promise(labels, promise)
    rows_N = places(labels, items)             # which judgements of public items they are about

What is trusted: only the user's own node. The server sees no true label.

Legend: S asked users, N their labels, J their public judgements.
"""

import numpy as np
from flwr.app import ConfigRecord, RecordDict

from murmuration.preference.data.public_items import item_id
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomized_response import LabelPromise, ToldLabels
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.arrays import decoded
from murmuration.strategies.protocol.public_items import PublicItems
from murmuration.strategies.protocol.records import arrays_of, config_of
from murmuration.strategies.protocol.users import RegistryError

#: The message type of the query.
QUERY = "query.labels"
#: As much may be missing where a node computed ε from flip rates.
_ROUNDING = 1e-9


def request(promise: LabelPromise, asked: messages.UserSelection) -> RecordDict:
    """Ask a node for randomized labels of some of its users."""
    terms = {"adjacency": Adjacency.REPLACE_LABELS.value, **promise.to_config()}
    return RecordDict(
        {
            "labels": ConfigRecord(terms),  # type: ignore[arg-type]
            messages.COHORT: asked.to_record(),
        }
    )


def read_request(content: RecordDict) -> tuple[LabelPromise, messages.UserSelection]:
    """The promise, and whose labels are asked for.

    Raises:
        ValueError: another adjacency than ``replace-labels``, or no promise.
    """
    asked = dict(config_of(content, "labels"))
    adjacency = asked.pop("adjacency", None)
    if adjacency != Adjacency.REPLACE_LABELS.value:
        raise ValueError(
            f"randomized labels protect under {Adjacency.REPLACE_LABELS} only; the request names "
            f"{adjacency!r}"
        )
    return LabelPromise.from_config(asked), messages.UserSelection.of(content)


def reply(labels: ToldLabels) -> RecordDict:
    """A node's answer."""
    arrays = {
        "items": labels.items_N,
        "answers": labels.answers_N.astype(np.uint8),
        "choices": labels.choices_N.astype(np.uint8),
        "counts": np.diff(labels.start_U),
        "per-label": labels.per_label_U,
    }
    return RecordDict({"labels": messages.array_record(arrays)})


def read_reply(content: RecordDict, users: int) -> ToldLabels:
    """The labels of ``users`` users; MalformedReply if the answer is something else."""
    with messages.reading("the labels query"):
        record = arrays_of(content, "labels")
        items, answers, choices, counts, per_label = (
            decoded(record[name]) for name in ("items", "answers", "choices", "counts", "per-label")
        )
        if counts.shape != (users,) or counts.dtype != np.int64:
            raise ValueError(f"numbers of labels of {users} users were asked for")
        if per_label.dtype != np.float64 or {answers.dtype, choices.dtype} != {np.dtype(np.uint8)}:
            raise ValueError("numbers of another kind")
        start = np.concatenate([[0], np.cumsum(counts)])
        return ToldLabels(
            start, items, answers.astype(np.int64), choices.astype(np.int64), per_label
        )


def check_promise(labels: ToldLabels, promise: LabelPromise) -> None:
    """Raise RegistryError if labels cost a user more than ``promise`` covers.

    A server cannot see the randomization itself. But the parameters that a node states must not
    cost its users more than the ledger counts.
    """
    told_U = np.diff(labels.start_U)
    if promise.cap and told_U.max(initial=0) > promise.cap:
        raise RegistryError(f"a node tells more labels of a user than the cap of {promise.cap}")
    pairs = zip(labels.per_label_U.tolist(), told_U.tolist(), strict=True)
    for per_label, told in sorted(set(pairs)):
        spent = promise.spent(per_label, told)
        if not spent <= promise.epsilon * (1 + _ROUNDING):
            raise RegistryError(
                f"a node tells labels at epsilon {spent:.6g} of a user, and {promise} was asked for"
            )


def places(labels: ToldLabels, items: PublicItems) -> np.ndarray:
    """The public judgement of the same users that each label is about, (N,) int64, all different.

    Raises:
        RegistryError: a label about nothing that was shown to its user.
    """
    if len(labels.start_U) != len(items.start_S):
        raise RegistryError("labels and public items are of different users")
    pairs = zip(items.prompts, items.responses, strict=True)
    ids = [item_id(*pair) for pair in pairs]
    rows = np.zeros(len(labels.items_N), dtype=np.int64)
    for user in range(len(labels.per_label_U)):
        waiting: dict[int, list[int]] = {}
        for row in range(items.start_S[user + 1] - 1, items.start_S[user] - 1, -1):
            waiting.setdefault(ids[row], []).append(row)
        for label in range(labels.start_U[user], labels.start_U[user + 1]):
            left = waiting.get(int(labels.items_N[label]))
            if not left or len(items.responses[left[-1]]) != labels.choices_N[label]:
                raise RegistryError("a node tells the label of an item that was not shown")
            rows[label] = left.pop()
    return rows
