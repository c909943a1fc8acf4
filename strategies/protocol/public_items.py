"""Public items: the texts shown to each user, sent to a server that solves for the model.

Only under ``replace-labels``, where prompts, responses and numbers of judgements are public.
Messages reveal nothing about labels: a judgement's responses come in canonical order, a user's
judgements in the order of their items (``preference.data.public_items``), texts sorted as strings,
and a deployed node's users in the order of their ids (``client.store``). A node refuses every
request that does not name that adjacency, and a deployed one, besides, unless its own node-config
says ``public-items=true``: that texts are public is not for the server to decide.

    items = PublicItems.ask(grid, registry, users_S)      # a judgement's label is missing
    examples = items.examples(feature_map)                # rows: canonical first minus the others

Legend: S asked users, J their judgements, K the most responses of one, T distinct texts,
P distinct prompts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.serverapp import Grid

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.public_items import canonical, public_order
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.features.hashing import FeatureMap
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.arrays import decoded
from murmuration.strategies.protocol.availability import failed_node
from murmuration.strategies.protocol.exchange import exchange
from murmuration.strategies.protocol.records import arrays_of, config_of
from murmuration.strategies.protocol.users import Registry, RegistryError

if TYPE_CHECKING:
    from murmuration.preference.linear.examples import PairExamples

#: The message type of the query, and the key of a deployed node's consent.
QUERY, CONSENT = "query.items", "public-items"


def request(asked: messages.UserSelection) -> RecordDict:
    """Ask a node for the public items of some of its users."""
    about = ConfigRecord({"adjacency": Adjacency.REPLACE_LABELS.value})
    return RecordDict({"items": about, messages.COHORT: asked.to_record()})


def read_request(content: RecordDict, node_config: Mapping[str, object]) -> messages.UserSelection:
    """The users whose items are requested; ValueError if texts are not public."""
    adjacency = config_of(content, "items").get("adjacency")
    if adjacency != Adjacency.REPLACE_LABELS.value:
        raise ValueError(
            f"prompts and responses are public under {Adjacency.REPLACE_LABELS} only; the request "
            f"names {adjacency!r}"
        )
    if "data" in node_config and node_config.get(CONSENT) is not True:
        raise ValueError(
            "this node does not give out prompts and responses; if they are public, start it with "
            f"node-config {CONSENT}=true"
        )
    return messages.UserSelection.of(content)


def reply(judgements: Judgements) -> RecordDict:
    """The items of the asked users' judgements, which are all that ``judgements`` holds."""
    order_J = public_order(judgements)
    shown = [canonical(judgements.responses[row]) for row in order_J]
    prompts = sorted({judgements.prompts[row] for row in order_J})
    texts = sorted({text for responses in shown for text in responses})
    place_P = {prompt: place for place, prompt in enumerate(prompts)}
    place_T = {text: place for place, text in enumerate(texts)}
    most = max((len(responses) for responses in shown), default=0)
    shown_JK = np.full((len(shown), most), -1, dtype=np.int64)
    for row, responses in enumerate(shown):
        shown_JK[row, : len(responses)] = [place_T[text] for text in responses]
    arrays = {
        "counts": judgements.counts_U.astype(np.int64),
        "prompt": np.array([place_P[judgements.prompts[row]] for row in order_J], dtype=np.int64),
        "shown": shown_JK,
        "texts": np.frombuffer(json.dumps([prompts, texts]).encode(), dtype=np.uint8),
    }
    return RecordDict(
        {
            "items": messages.array_record(arrays),
            "about": ConfigRecord({"kind": judgements.kind}),
        }
    )


@dataclass(frozen=True, eq=False)
class PublicItems:
    """The items shown to S users: their judgements without labels.

    Attributes:
        start_S: int64, S + 1 offsets into the judgements.
        prompts: J prompts.
        responses: J tuples of responses in canonical order.
        schema: the declaration of the judgements.
        bytes: size of the texts and indices that were sent, of all nodes.
    """

    start_S: np.ndarray
    prompts: list[str]
    responses: list[tuple[str, ...]]
    schema: Schema = PAIRS
    bytes: int = 0

    @classmethod
    def ask(
        cls,
        grid: Grid,
        registry: Registry,
        users_S: np.ndarray,
        *,
        schema: Schema = PAIRS,
        timeout: float = 3600.0,
    ) -> PublicItems:
        """The items of these users (ascending indices in the registry), in their order.

        ``schema`` is what judgements are declared to be.

        Raises:
            RunAborted: a deployed node refused or failed.
            RegistryError: a node did not answer, or its answer does not fit its registration.
        """
        asked = dict(registry.by_node(users_S))
        outgoing = [messages.outgoing(request(about), QUERY, node) for node, about in asked.items()]
        result: dict[int, PublicItems] = {}
        for answer in exchange(grid, outgoing, timeout):
            node = answer.metadata.src_node_id
            if answer.has_error():
                reason = str(answer.error.reason)
                if not registry.simulated:
                    raise failed_node(reason, simulated=False, node=node)
                raise RegistryError(f"a node gave no public items: {reason}")
            try:
                result[node] = read(answer.content, len(asked[node]), schema)
            except messages.MalformedReply as error:
                raise RegistryError(f"a node's public items cannot be used: {error}") from None
        if missing := len(asked) - len(result):
            raise RegistryError(f"{missing} of {len(asked)} nodes did not answer in time")
        together = cls._joined([result[node] for node in asked], schema)
        counts_N = registry.counts_N
        if counts_N is not None and (np.diff(together.start_S) != counts_N[users_S]).any():
            raise RegistryError("a node's public items are not as many as it registered")
        return together

    @classmethod
    def _joined(cls, parts: list[PublicItems], schema: Schema) -> PublicItems:
        counts_S = np.concatenate([np.diff(part.start_S) for part in parts])
        return cls(
            np.concatenate([[0], np.cumsum(counts_S)]),
            [prompt for part in parts for prompt in part.prompts],
            [responses for part in parts for responses in part.responses],
            schema,
            sum(part.bytes for part in parts),
        )

    def select(self, users: slice) -> PublicItems:
        """The items of some users that follow each other, ``start`` to ``stop``."""
        start_S = self.start_S[users.start : users.stop + 1]
        part = slice(int(start_S[0]), int(start_S[-1]))
        return PublicItems(
            start_S - start_S[0], self.prompts[part], self.responses[part], self.schema
        )

    def judgements(self) -> Judgements:
        """Placeholder judgements of nameless users, in which all labels prefer the canonical first
        response.
        """
        return Judgements(
            user_ids=tuple(str(user) for user in range(len(self.start_S) - 1)),
            start_U=self.start_S,
            prompts=self.prompts,
            responses=self.responses,
            y_R=np.ones(len(self.prompts), dtype=np.float32),
            kind=self.schema.kind,
            most_responses=self.schema.responses,
        )

    @property
    def bytes_per_user(self) -> float:
        """Mean size of the answer about one user on a node of their own."""
        total = 0
        for user in range(len(self.start_S) - 1):
            mine = slice(int(self.start_S[user]), int(self.start_S[user + 1]))
            shown = self.responses[mine]
            texts = [
                sorted(set(self.prompts[mine])),
                sorted({t for listed in shown for t in listed}),
            ]
            places = 1 + len(shown) * (1 + max(map(len, shown), default=0))
            total += len(json.dumps(texts)) + 8 * places
        return total / max(1, len(self.start_S) - 1)

    def examples(self, features: FeatureMap) -> PairExamples:
        """Feature differences of the canonical first response to the others; labels mean nothing.

        Raises InputError if features are not finite.
        """
        from murmuration.preference.linear.examples import pair_examples

        return pair_examples(self.judgements(), features)


def read(
    content: RecordDict,
    users: int,
    schema: Schema = PAIRS,
) -> PublicItems:
    """The items of ``users`` users from a node's answer; MalformedReply if it is something else."""
    with messages.reading("the items query"):
        record: ArrayRecord = arrays_of(content, "items")
        kind = config_of(content, "about")["kind"]
        arrays = {name: decoded(record[name]) for name in ("counts", "prompt", "shown", "texts")}
        prompts, texts = json.loads(arrays["texts"].tobytes())
        counts_S, prompt_J, shown_JK = arrays["counts"], arrays["prompt"], arrays["shown"]
        if not all(arrays[name].dtype == np.int64 for name in ("counts", "prompt", "shown")):
            raise TypeError("counts and indices must be whole numbers")
        rows = int(counts_S.sum())
        fits = counts_S.shape == (users,) and prompt_J.shape == (rows,) and len(shown_JK) == rows
        least = (counts_S.min(initial=0), prompt_J.min(initial=0), shown_JK[:, :2].min(initial=0))
        if not fits or min(least) < 0 or counts_S.max(initial=0) > rows:
            raise ValueError("counts and indices do not fit")
        given = [prompts[place] for place in prompt_J]
        responses = [tuple(texts[place] for place in row if place >= 0) for row in shown_JK]
        if not all(isinstance(text, str) for text in (*prompts, *texts)):
            raise TypeError("texts must be strings")
        for text in (*prompts, *texts):
            text.encode()  # halves of characters have no name
        many = [len(shown) for shown in responses]
        if kind != schema.kind or not 2 <= min(many, default=2) <= max(many, default=2) <= (
            schema.responses
        ):
            raise ValueError(f"judgements that are not as declared ({schema.options})")
        size = sum(array.nbytes for array in arrays.values())
        start_S = np.concatenate([[0], np.cumsum(counts_S)])
        return PublicItems(start_S, given, responses, schema, size)
