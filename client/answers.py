"""The answers of a node to each kind of message: pure functions of the request and the host.

The same code answers in a simulation, in the ClientApp of a deployed node that reads its data
itself, and in the agent that keeps the data from the ClientApp (``client.agent.agent``). Nothing
leaves except the results of these functions: the users of the node, items that some of them were
shown (where these are public), labels under randomized response, bounded sums over some users, and
the accuracy of a model on some users, bounded too. If the owner lets only randomized labels leave,
the node answers neither of the last two.

A failure is an answer, too, so a request is checked before any judgement is read: its grids, masks
and noise follow from it alone, and its parameters are first tried on no users. After that a
deployed node answers, whatever happens. If a user's vector cannot be computed, or is not bounded
and on the grid as the request says, that user counts as zero: the owner's log notes it, and the
sum, its size, its masks and its noise are as usual. SECURITY.md lists what can fail nevertheless,
and what a server sees of it.

Legend: S sampled users, U users of the node.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from flwr.app import RecordDict

from murmuration.client import secure
from murmuration.client.agent.identity import Identity
from murmuration.client.agent.plan_check import promised
from murmuration.client.bounded_sums import BoundedSums, left_out
from murmuration.client.labels.memory import LabelState
from murmuration.client.labels.pre_randomized import stated_labels
from murmuration.client.labels.terms import check_terms, check_true_labels
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import Data
from murmuration.preference.data.schema import Schema
from murmuration.preference.kinds.model import Examples
from murmuration.preference.models import preference_model
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.strategies import registry as catalogue
from murmuration.strategies.contributions import STACKED
from murmuration.strategies.protocol import (
    label_queries,
    messages,
    plan_query,
    public_items,
    secure_messages,
)
from murmuration.strategies.protocol.records import config_of
from murmuration.strategies.solved.local_label import LOCAL_LABEL
from murmuration.strategies.spec import NodeHalf


@dataclass(frozen=True, kw_only=True)
class Host:
    """The source of a node's answers.

    ``store`` and ``labels`` give the users and their randomized labels; ``source`` the node's own
    draws; ``terms`` what its owner decided, under the names of ``client.labels.terms``; ``memory``
    keeps what a session of secure aggregation needs between messages, and ``identity`` signs its
    keys. ``halves`` is what can be asked for work, by its name in requests.
    """

    store: Callable[[], UserStore]
    labels: Callable[[], LabelState]
    source: Randomness
    terms: Mapping[str, object]
    memory: secure.Memory = field(default_factory=dict)
    identity: Identity = field(default_factory=Identity)
    halves: Callable[[], Mapping[str, NodeHalf]] = lambda: catalogue.node_halves()


def registry(content: RecordDict, host: Host) -> RecordDict:
    """Return whom this node hosts; numbers of judgements only if the server says they are public.

    Computes features and looks whether the run is about what this node's judgements are declared to
    be, so that what does not fit shows before the first round. A language model that nodes are not
    going to train is not loaded for it: lengths of texts need its tokens alone. Nothing that a
    deployed node says depends on what users have: who has nothing that can be used is hosted all
    the same.
    """
    request = config_of(content, "registry")
    store = host.store()
    _check_declared(store.judgements, str(request["kind"]), request["responses"])
    _check_users(store.judgements, request.get("one-user-per-row", False) is True)
    trains = bool(request.get("trains", True))
    examples = store.examples(str(request["features"]), weights=trains)
    model = preference_model(str(request["model"]), examples.kind, examples.width)
    if trains:
        learnt = store.model(str(request["features"]))
        declared = Schema(request["kind"], request["responses"])  # type: ignore[arg-type]
        group_size = int(request.get("group-size", 0))  # type: ignore[call-overload]
        users = len(store.keys_U) if request.get("shared-passes", False) else 1
        learnt.try_out(declared, model, group_size, users)
    entry = messages.RegistryEntry(
        place=store.place,
        places=store.places,
        keys_U=store.salted_keys(bytes(request["salt"])),  # type: ignore[arg-type]
        counts_U=store.judgements.counts_U if request["counts"] else None,
        randomized=randomized(store.judgements),
        usable=None if store.place < 0 else int(examples.counts_U.sum()),
    )
    return messages.registry_reply(entry)


def plan(content: RecordDict, host: Host) -> RecordDict:
    """By which of its owner's terms what a run is going to ask would be refused, if by any.

    A node whose owner has an agent answers by the owner's policy instead (``client.agent.agent``).
    """
    work, parties = plan_query.read_request(content)
    labels = work.parameters.get("strategy") == LOCAL_LABEL.name
    try:
        if labels:
            settled = randomized(host.store().judgements)
            check_terms(promised(work), host.terms, settled=settled)
        else:
            check_true_labels(host.terms)
    except InputError:
        return plan_query.reply("label_epsilon")
    if secure.lacks_noise(work.parameters):
        return plan_query.reply(plan_query.OPENDP)
    bare = secure.only(host.terms) and not (labels or parties)
    return plan_query.reply("secure_only" if bare else "")


def items(content: RecordDict, host: Host) -> RecordDict:
    """The items that some users were shown, if they are public; never a label."""
    selection = public_items.read_request(content, host.terms)
    return public_items.reply(_judged(host.store(), selection))


def labels(content: RecordDict, host: Host) -> RecordDict:
    """Randomized labels of some users, each randomized once, now or before."""
    promise, names = label_queries.read_request(content)
    judgements = host.store().judgements
    check_terms(promise, host.terms, settled=randomized(judgements))
    judged = _judged(host.store(), names)
    if randomized(judged):
        label_reply = host.store().leaving_out(lambda taken: stated_labels(judged, promise, taken))
        return label_queries.reply(label_reply)
    return label_queries.reply(host.labels().answer(judged, promise, host.source).labels)


def _check_terms(content: RecordDict, host: Host) -> None:
    """Raise InputError or ProtocolError where the owner does not let such sums leave."""
    check_true_labels(host.terms)
    secure.check_terms(content, host.terms)


def _asked(
    content: RecordDict, selection: messages.UserSelection, host: Host
) -> tuple[messages.TrainRequest, Examples, np.ndarray]:
    """Work, what it is on, and where those asked for stand here, (S,), −1: nowhere."""
    store = host.store()
    places_S = store.where(selection)
    work = messages.read_work(content, places_S[places_S >= 0])
    return work, store.examples(str(work.parameters["features"])), places_S


def train(content: RecordDict, host: Host) -> RecordDict:
    """The bounded sums over the sampled users' contributions; few of them as whole steps."""
    _check_terms(content, host)
    parameters: Any = config_of(content, "parameters")
    node_half = host.halves()[str(parameters["strategy"])]
    number = partial(messages.number, parameters)
    steps, selection = node_half.steps(number), messages.UserSelection.of(content)
    longest = math.inf if node_half.length is None else node_half.length(number)
    if steps and node_half.length:
        grid.check_room(len(selection), longest, steps["sum"])
    masking = secure.masking("train", content, steps, host.memory)
    work, examples, places_S = _asked(content, selection, host)
    if node_half.model:
        _check_lengths(work.arrays, examples.dimension)
    keys_S = host.store().keys_U[work.users_S]
    source = host.source.again(int(work.parameters.get(messages.DRAW, 0)))
    bounded = BoundedSums(
        half=node_half,
        examples=examples,
        work=work,
        keys_S=keys_S,
        source=source,
        steps=steps,
        longest=longest,
    )
    sums = bounded.deployed() if host.store().place < 0 else bounded.simulated()
    if masking is not None:
        return masking.reply(sums, host.memory)
    sums = {name: _of_all(name, sums[name], places_S) for name in sums}
    few = grid.short(len(selection) * longest / number("clip-norm", math.nan))
    return messages.sums_reply(sums, steps if few else {})


def evaluate(content: RecordDict, host: Host) -> RecordDict:
    """The model's agreement with held-out users: a bounded sum over users."""
    _check_terms(content, host)
    masking = secure.masking("evaluate", content, {messages.TALLY: 1.0}, host.memory)
    work, examples, _ = _asked(content, messages.UserSelection.of(content), host)
    _check_lengths(work.arrays, examples.dimension)
    tally = Tally(loss=examples.measures_loss)
    total_F = np.zeros(tally.figures)
    for user in work.users_S:  # one at a time: in company their last digits could depend on others
        with left_out("a user's part") if host.store().place < 0 else nullcontext():
            result = examples.select(np.array([user])).accuracy(work.arrays["theta"])
            total_F += tally.contribution(result.by_user, result.loss)
    sums = {messages.TALLY: total_F}
    return masking.reply(sums, host.memory) if masking else messages.sums_reply(sums)


def _check_declared(data: Data, kind: str, responses: object) -> None:
    """ValueError where the run is about other judgements than are declared here.

    What is said are declarations, which no user has a part in.
    """
    declared = data.declared
    if declared is not None and declared != (kind, responses):
        raise ValueError(
            f"this node's data are declared to be {declared[0]} over at most {declared[1]} "
            f"responses, and the run is about {kind} over at most {responses}: its owner declares "
            "them with node-config kind=… responses=… (or murmuration agent --kind --responses)"
        )


def _check_users(data: Data, rows: bool) -> None:
    """ValueError where the run and this node do not mean the same by a user: rows, or people."""
    if data.one_user_per_row != rows:
        here, there = ("people", "rows") if rows else ("rows", "people")
        raise ValueError(
            f"the users of this node are {here}, and the run promises to protect {there}: "
            "one-user-per-row must be the same in its node-config (or for murmuration agent) and "
            "in the run"
        )


def randomized(data: Data) -> bool:
    """True if labels were randomized before they came to the node."""
    return data.randomized


def _of_all(name: str, rows: np.ndarray, places_S: np.ndarray) -> np.ndarray:
    """Add rows of zeros for users who are not here, if there is a row for each user."""
    if name not in STACKED:
        return rows
    all_S = np.zeros((len(places_S), *rows.shape[1:]), dtype=rows.dtype)
    all_S[places_S >= 0] = rows
    return all_S


def _judged(store: UserStore, asked: messages.UserSelection) -> Judgements:
    """The judgements of some users, none of those who are not here; ValueError where the node
    hosts texts that nobody judged.
    """
    places_S = store.where(asked)
    judgements = store.judgements.as_judgements("this node hosts users' texts, not judgements")
    here = judgements.select(places_S[places_S >= 0])
    counts_S = np.zeros(len(asked), dtype=np.int64)
    counts_S[places_S >= 0] = here.counts_U
    ids = iter(here.user_ids)
    # No user's id begins with a blank.
    named = (next(ids) if place >= 0 else f" {number}" for number, place in enumerate(places_S))
    return replace(here, user_ids=tuple(named), start_U=np.concatenate([[0], np.cumsum(counts_S)]))


def _check_lengths(arrays: Mapping[str, np.ndarray], dimension: int) -> None:
    """Kernels do not look again: a model that is too short would be read beyond its end."""
    result = {name: array.shape for name, array in arrays.items() if array.shape != (dimension,)}
    if result or "theta" not in arrays:
        raise ValueError(f"a model of {dimension} numbers is asked about, not {result}")
    if not all(array.dtype in (np.float32, np.float64) for array in arrays.values()):
        raise ValueError("a model is of floating-point numbers")


#: By message type.
ANSWERS: dict[str, Callable[[RecordDict, Host], RecordDict]] = {
    "query.registry": registry,
    plan_query.QUERY: plan,
    public_items.QUERY: items,
    label_queries.QUERY: labels,
    secure_messages.KEYS: lambda content, host: secure.keys(content, host.memory, host.identity),
    secure_messages.SHARES: lambda content, host: secure.shares(
        content, host.memory, host.terms, host.identity
    ),
    secure_messages.UNMASK: lambda content, host: secure.unmask(content, host.memory),
    "train": train,
    "evaluate": evaluate,
}
