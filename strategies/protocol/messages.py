"""All messages between server and nodes.

A message carries public parameters and, towards the server, one bounded sum. Encoding and decoding
live in one place, so that both sides agree and a malformed reply is noticed where it arrives.

Users are named by the salted 64-bit names under which they registered, never by their place at a
node: there users may have been added or removed since, and all that follow would be mistaken for
others.

Legend: D dimensions, S sampled users of a node, U users of a node.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.privacy.mechanisms import grid
from murmuration.privacy.mechanisms.distributed import NodeNoise
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.strategies.protocol.arrays import decoded, encoded
from murmuration.strategies.protocol.node_texts import shortened
from murmuration.strategies.protocol.records import arrays_of, config_of

if TYPE_CHECKING:
    import torch

Scalar = bool | int | float | str | bytes

#: Places of no user.
NOBODY = np.empty(0, dtype=np.int64)
#: Where it stands whom a request is about.
COHORT = "cohort"
#: Among a request's parameters: how often its round was drawn before; left out for never.
DRAW = "draw"
_MOST_JUDGEMENTS = 2**31  # of a user
#: In the text of an error by which a node's owner refuses what is asked.
OWNER_REFUSES = "the owner's policy refuses"
#: The rules of such a policy (``client.agent.policy``), of which one follows in brackets.
OWNER_RULES = (
    "strategies",
    "adjacency",
    "max_epsilon",
    "delta",
    "max_clip",
    "min_users",
    "max_group_size",
    "max_rounds",
    "max_repeats",
    "max_evaluations",
    "label_epsilon",
    "label_min_epsilon",
    "label_delta",
    "label_cap",
    "public_items",
    "features",
    "max_dimension",
    "tasks",
    "shared_passes",
    "secure_only",
    "min_parties",
    "parties",
    "extensions",
    "honest_parties",
    "hold_out",
)


class MalformedReply(ValueError):
    """A reply that is not what was asked for; ``why`` is cut and escaped, as it may quote it."""

    def __init__(self, why: str) -> None:
        super().__init__(shortened(why))


@contextmanager
def reading(question: str) -> Iterator[None]:
    """Turn any error while reading an answer into a MalformedReply: another machine's bytes can
    fail in any way.
    """
    try:
        yield
    except MalformedReply:
        raise
    except Exception as error:
        why = str(error) if isinstance(error, ValueError) else repr(error)
        raise MalformedReply(f"not an answer to {question}: {why}") from None


@dataclass(frozen=True)
class RegistryEntry:
    """A node's answer to the request for its users.

    ``place`` orders nodes (the partition in a simulation, −1 elsewhere), of which there are
    ``places`` (0: the node knows of no others); ``keys_U`` are salted 64-bit names of its users, to
    notice one hosted twice; ``counts_U`` their numbers of judgements, where those are public;
    ``randomized`` says whether any of its labels went through randomized response before they
    reached it; ``usable``, in a simulation alone, the number of its rows with features.
    """

    place: int
    keys_U: np.ndarray
    counts_U: np.ndarray | None
    randomized: bool = False
    places: int = 0
    _: KW_ONLY
    usable: int | None = None


def outgoing(
    content: RecordDict, kind: str, node: int, round_: int = 0, lives: float | None = None
) -> Message:
    """A message to a node: ``kind`` as in ``train`` or ``query.registry``.

    After ``lives`` seconds it is not delivered any more; None: as long as Flower keeps it.
    """
    return Message(content, dst_node_id=node, message_type=kind, group_id=str(round_), ttl=lives)


def content_of(reply: Message) -> RecordDict:
    """A node's answer; MalformedReply, with what it says, where it failed."""
    if reply.has_error():
        raise MalformedReply(f"error {reply.error.code}: {reply.error.reason}")
    return reply.content


def registry_request(
    salt: bytes,
    counts: bool,
    features: str,
    *,
    model: str = "btl",
    schema: Schema = PAIRS,
    group_size: int = 0,
    shared_passes: bool = False,
    trains: bool = True,
) -> RecordDict:
    """Ask a node for its users, and to prepare their features for a preference model.

    ``features`` is the feature map's config as JSON, ``model`` the name of the preference model,
    ``schema`` the run's declaration of judgements: a node with others reports it. ``group_size``
    (0: not known yet) and ``shared_passes`` are the most that may be requested at a time: a node
    without enough memory reports that, too, unless nodes will not train (``trains``).
    """
    asked = {"salt": salt, "counts": counts, "features": features, "model": model}
    asked |= {"kind": schema.kind, "responses": schema.responses}
    asked |= {"one-user-per-row": schema.one_user_per_row}
    asked |= {"group-size": group_size, "shared-passes": shared_passes, "trains": trains}
    return RecordDict({"registry": ConfigRecord(asked)})


def registry_reply(entry: RegistryEntry) -> RecordDict:
    """A node's answer."""
    arrays = {"keys": encoded(entry.keys_U.astype(np.uint64))}
    if entry.counts_U is not None:
        arrays["counts"] = encoded(entry.counts_U.astype(np.int64))
    about = ConfigRecord(
        {"place": entry.place, "places": entry.places, "randomized": entry.randomized}
    )
    if entry.usable is not None:
        about["usable"] = entry.usable
    return RecordDict({"registry": about, "users": ArrayRecord(arrays)})


def read_registry(content: RecordDict) -> RegistryEntry:
    """A node's answer, decoded; MalformedReply if it is something else."""
    with reading("the registry query"):
        arrays, about = arrays_of(content, "users"), config_of(content, "registry")
        keys_U = decoded(arrays["keys"])
        counts_U = decoded(arrays["counts"]) if "counts" in arrays else None
        usable = about.get("usable")
        places = about["place"], about.get("places", 0)
        fits = keys_U.ndim == 1 and keys_U.dtype == np.uint64
        if counts_U is not None:
            fits = fits and counts_U.shape == keys_U.shape and counts_U.dtype == np.int64
            fits = fits and bool(((counts_U >= 0) & (counts_U <= _MOST_JUDGEMENTS)).all())
        fits = fits and (usable is None or type(usable) is int)
        if not (fits and all(type(place) is int for place in places)):
            raise ValueError("the registry answer has the wrong shape")
        randomized = about.get("randomized", False) is True
        return RegistryEntry(places[0], keys_U, counts_U, randomized, places[1], usable=usable)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class UserSelection:
    """Users whom a request is about: ``names_S`` uint64, made with ``salt``."""

    salt: bytes
    names_S: np.ndarray

    def __len__(self) -> int:
        return len(self.names_S)

    def to_record(self) -> ConfigRecord:
        """The record for a message: plain bytes, as decoding an array takes longer than naming a
        cohort.
        """
        return ConfigRecord({"salt": self.salt, "users": self.names_S.astype("<u8").tobytes()})

    @classmethod
    def of(cls, content: RecordDict) -> UserSelection:
        """The users that a request is about; ValueError if none is named, or one twice."""
        record = config_of(content, COHORT)
        names, salt = record["users"], record["salt"]
        if not (isinstance(names, bytes) and isinstance(salt, bytes)) or len(names) % 8:
            raise ValueError("users are named by whole numbers of 64 bits, and a salt")
        names_S = np.frombuffer(names, dtype="<u8").astype(np.uint64)
        if len(np.unique(names_S)) < len(names_S):
            raise ValueError("the request names users twice")
        return cls(salt, names_S)


@dataclass(frozen=True, eq=False)
class TrainRequest:
    """A request to a node: compute for some of its users at a model.

    ``arrays`` holds ``theta`` (the model, (D,) float32) and all else that the strategy's node half
    needs; ``parameters`` its public constants; ``users_S`` the users' places at the node.
    """

    arrays: Mapping[str, np.ndarray]
    parameters: Mapping[str, Scalar]
    users_S: np.ndarray

    def tensor(self, name: str) -> torch.Tensor:
        """An array as a tensor of its own."""
        import torch

        return torch.tensor(self.arrays[name])

    def number(self, name: str) -> float:
        """A numeric parameter; KeyError or ValueError if it is missing or no number."""
        return float(self.parameters[name])


def number(parameters: Mapping[str, Scalar], name: str, missing: float) -> float:
    """A parameter, or what stands for one that is missing; NaN, which no bound allows, for what is
    no number."""
    value = parameters.get(name, missing)
    return float(value) if isinstance(value, int | float) else math.nan


def array_record(arrays: Mapping[str, np.ndarray]) -> ArrayRecord:
    """Arrays as they travel."""
    return ArrayRecord({name: encoded(a) for name, a in arrays.items()})


def model_record(theta_D: np.ndarray) -> ArrayRecord:
    """The model as it travels: θ in float32."""
    return array_record({"theta": theta_D.astype(np.float32)})


def work_request(
    model: ArrayRecord, parameters: Mapping[str, Scalar], asked: UserSelection
) -> RecordDict:
    """Ask a node to work; ``model`` is encoded once and shared by all messages of a round."""
    return RecordDict(
        {
            "model": model,
            "parameters": ConfigRecord(dict(parameters)),
            COHORT: asked.to_record(),
        }
    )


def read_work(content: RecordDict, users_S: np.ndarray = NOBODY) -> TrainRequest:
    """The request, for users at these indices."""
    arrays = {name: decoded(a) for name, a in arrays_of(content, "model").items()}
    parameters = dict(config_of(content, "parameters"))
    return TrainRequest(arrays, parameters, users_S)  # type: ignore[arg-type]


#: Among a request's parameters: of how many nodes' shares the noise on the sums is, and the
#: standard deviation of one share on each sum.
NOISE_PARTIES, _NOISE_ON = "noise-parties", "noise-on-"


def noise_parameters(noise: NodeNoise | None) -> dict[str, Scalar]:
    """The parameters of a request for noise that a node is to add; empty if it is to add none."""
    if noise is None:
        return {}
    shares = {_NOISE_ON + name: share for name, share in noise.shares.items()}
    return {NOISE_PARTIES: noise.parties, **shares}


def read_noise(parameters: Mapping[str, Scalar]) -> tuple[int, dict[str, float]]:
    """The number of shares of a round's noise, and the standard deviation of one share on each sum.

    Zero, and empty, if nodes add no noise. Raises ValueError for anything else.
    """
    shares = {
        name.removeprefix(_NOISE_ON): share
        for name, share in parameters.items()
        if name.startswith(_NOISE_ON)
    }
    parties = parameters.get(NOISE_PARTIES, 0)
    if type(parties) is not int or parties < 0 or bool(shares) != (parties >= 2):
        raise ValueError("noise of nodes is of two or more, with a share for each sum")
    if not all(type(share) is float and 0.0 < share < math.inf for share in shares.values()):
        raise ValueError("a share of noise has a positive standard deviation")
    return parties, shares  # type: ignore[return-value]


def sums_reply(
    sums: Mapping[str, np.ndarray], steps: Mapping[str, float] = MappingProxyType({})
) -> RecordDict:
    """A node's bounded sums, and nothing else; those named in ``steps`` as whole steps.

    Only if these fit 32 bits by public numbers, so that a message's size does not depend on data.

    Raises:
        ValueError: a sum is not on its grid, or does not fit 32 bits.
    """
    whole = {name: grid.to_short(sums[name], step) for name, step in steps.items()}
    return RecordDict({"sums": array_record({**sums, **whole})})


def read_sums(
    content: RecordDict,
    shapes: Mapping[str, tuple[int, ...]],
    steps: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, np.ndarray]:
    """The sums of a reply, float; MalformedReply unless they are exactly those of ``shapes``.

    Those named in ``steps`` may have come as whole steps (of step 0, on no grid, not).
    """
    with reading("a request for sums"):
        sums = {name: decoded(a) for name, a in arrays_of(content, "sums").items()}
        answered = {name: array.shape for name, array in sums.items()}
        if answered != dict(shapes):
            raise ValueError(f"sums of shapes {dict(shapes)} were asked for, got {answered}")
        sums |= {name: in_units(sums[name], step) for name, step in steps.items() if step}
        if not all(np.issubdtype(array.dtype, np.floating) for array in sums.values()):
            raise ValueError("sums must be floating-point numbers")
        return sums


def in_units(sum_: np.ndarray, step: float) -> np.ndarray:
    """A sum that came as whole steps as what it is, float64; any other as it came."""
    return grid.from_whole(sum_, step) if sum_.dtype == np.int32 else sum_


#: Name of the sums over held-out users (``privacy.mechanisms.tally``).
TALLY = "tally"


def read_tally(content: RecordDict, tally: Tally, users: int) -> np.ndarray:
    """The sums of a node's held-out users, (F,); MalformedReply for what they cannot produce."""
    sum_F = read_sums(content, {TALLY: (tally.figures,)})[TALLY]
    if not tally.is_valid(sum_F, users):
        raise MalformedReply(f"a tally that {users} users cannot produce")
    return sum_F
