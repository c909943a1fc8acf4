"""Scores by a user's own reward, for programs that must not see the judgements: "score for me".

A model of ``--tastes`` gives a user's own reward by V weights, which the user's judgements decide
(``preference.linear.tastes``). An agent answers with none that are exact, for whoever sees enough
scores has the weights. It randomizes them once for each model (``mechanisms.discrete_laplace``),
notes the result in the owner's ledger before anything is answered by it, and answers by that result
for ever: whoever asks, about whatever and however often, all answers about a user by one model are
(``score_epsilon``, 0)-locally DP in all that the user judged. Judgements that come later change
nothing.

Decisions:
- Weights of all users are computed before the first request, and where that fails they are zeros:
  neither whether there is an answer, nor when, depends on what was judged.
- The owner's rule ``score_models`` lists which models may be asked about, and as many are the most,
  for life: a folder that is written anew is another model. What a model is made to ask of
  somebody's weights is bounded all the same.
- Whoever may use the agent's socket may ask. That is the SuperNode's app, too, which the server
  ships: what it learns so is beside ``max_epsilon``, ``secure_only`` and ``honest_parties``.
- Users who are rows are refused: the name of such a user tells the texts.

Legend: V weights of a user, R texts.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import RecordDict

from murmuration.client.agent.ledger import OwnLedger
from murmuration.client.agent.policy import Policy, PolicyRefusal
from murmuration.client.store import UserStore
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.escaping import get_logger
from murmuration.preference.language.checkpoint import digest_of
from murmuration.preference.language.confined.tokenizer import confined
from murmuration.preference.language.reward import FILE, SavedReward
from murmuration.preference.linear.tastes import ONE_FOR_ALL
from murmuration.preference.reward import RewardModel
from murmuration.privacy.mechanisms.discrete_laplace import AbsoluteClip, LocalLaplace
from murmuration.privacy.mechanisms.randomness import Randomness, user_key
from murmuration.strategies.protocol.score_query import QUERY, ScoreRequest, reply

log = get_logger("murmuration.agent")

#: Of a user's weights: one standard deviation of what they are before any judgement (the ridge of
#: ``preference.linear.tastes``).
CLIP = AbsoluteClip(1.0)


@dataclass(frozen=True)
class _Loaded:
    digest: str
    reward: RewardModel | SavedReward


class OwnScores:
    """Answers ``QUERY`` for the users of an agent.

    Raises:
        InputError: a model of the policy cannot be used for it, or users' judgements are no pairs.
    """

    def __init__(
        self, store: UserStore, policy: Policy, ledger: OwnLedger, source: Randomness
    ) -> None:
        self._store, self._policy, self._ledger = store, policy, ledger
        self._source = source
        self._models = {
            str(Path(name)): _loaded(Path(name), policy) for name in policy.score_models
        }
        self._own: dict[tuple[str, int], np.ndarray] = {}
        if not policy.score_models:
            return
        judged = store.judgements.as_judgements("score_models: these are texts, no judgements")
        if judged.kind != "pairs" or judged.one_user_per_row:
            raise InputError(
                "score_models: own judgements must be pairs, of users who are named in the rows "
                "(user_id)"
            )
        for model in self._models.values():
            for place, key in enumerate(store.keys_U.tolist()):
                if (model.digest, key) not in ledger.weights:
                    mine = judged.select(np.array([place]))
                    self._own[model.digest, key] = self._weights(model, mine)

    def _weights(self, model: "_Loaded", judged: Judgements) -> np.ndarray:
        """One user's exact weights; zeros where they cannot be computed, of which the log has the
        kind of error alone."""
        try:
            return self._store.leaving_out(lambda left: model.reward.own_weights(judged, left))
        except Exception as error:
            log.error("score_models: weights could not be computed: %s", type(error).__name__)
            return np.zeros(model.reward.tastes)

    def answer(self, content: RecordDict) -> RecordDict:
        """Return the scores that are asked for.

        Raises:
            PolicyRefusal: the owner's rules do not allow it.
            ValueError: it is no request.
        """
        request = ScoreRequest.of(content)
        if request.model not in self._models:
            listed = ", ".join(self._models) or "none"
            raise PolicyRefusal(
                "score_models", f"{request.model!r} was asked about; allowed: {listed}"
            )
        model, place = self._models[request.model], self._place(request.user)
        own_V = self._randomized(model, place)
        self._ledger.answer(QUERY, users=1)
        return reply(model.reward.with_own(own_V).score_batch(request.prompts, request.responses))

    def _place(self, user: str) -> int:
        keys_U = self._store.keys_U
        if not user and len(keys_U) == 1:
            return 0
        places = np.flatnonzero(keys_U == np.uint64(user_key(user))) if user else ()
        if len(places) != 1:
            raise PolicyRefusal("score_models", "name one of the users who are here (--user-id)")
        return int(places[0])

    def _randomized(self, model: _Loaded, place: int) -> np.ndarray:
        """A user's weights that answers come of: from the ledger, or drawn and noted there."""
        key = int(self._store.keys_U[place])
        if (model.digest, key) not in self._ledger.weights:
            known = {digest for digest, _ in self._ledger.weights}
            if model.digest not in known and len(known) >= len(self._models):
                raise PolicyRefusal(
                    "score_models",
                    f"answers were by {len(known)} models before, of which this is none: a model "
                    "that is written anew costs score_epsilon again, so list it beside the others",
                )
            mechanism = LocalLaplace(CLIP, self._policy.score_epsilon)
            coins = self._source.stream("own weights", key)
            drawn_V = mechanism.randomized(self._own[model.digest, key], coins)
            self._ledger.add_weights(model.digest, key, drawn_V, mechanism.epsilon)
            del self._own[model.digest, key]  # exact, and of no more use
        drawn = self._ledger.weights[model.digest, key]
        return LocalLaplace(CLIP, drawn.epsilon).shrunk(np.array(drawn.weights))


def _loaded(folder: Path, policy: Policy) -> _Loaded:
    try:
        with confined():  # as whatever a deployed node reads of a model that somebody else made
            reward = RewardModel.load(folder)
    except InputError as error:
        raise InputError(f"score_models: {error}") from None
    tastes, size = reward.tastes, reward.features.dimension if reward.features else 0
    if not tastes:
        raise InputError(f"score_models: {folder}: {ONE_FOR_ALL}")
    if size * (1 + tastes) > policy.max_dimension:
        raise InputError(
            f"score_models: {folder}: {size} features times {1 + tastes} tastes; "
            f"{policy.max_dimension} are the most (max_dimension)"
        )
    about = folder / FILE  # how a language model's texts are written down
    described = hashlib.sha256(about.read_bytes()).hexdigest() if about.exists() else ""
    return _Loaded(digest_of(folder, described), reward)
