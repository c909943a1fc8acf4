"""A survey of users' data: one noisy sum of users' answers to public questions.

- *Node.* One vector per user: 1 if they have judgements, and for each question their own
  distribution over its answers (``surveying.questionnaire``). It is clipped to C, the largest
  possible length, which changes no honest user's vector. The sum leaves.
- *Server.* Adds Gaussian noise to the sum, once. Shares, quantiles and their errors are computed
  from it, which is post-processing (``surveying.release``).

Formal guarantee: (epsilon, delta) for everything a user has, under every adjacency. With Q
questions C = √(1 + Q): the sum moves by at most C where a user comes or goes (attained: one
judgement), and noise is for 2C where one takes another's place or changes labels. Questions, bins
and topics are public lists. Trusted: the nodes' clipping, and the server with the sum before noise.

Legend: S sampled users, C users of a chunk, V coordinates of a vector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from murmuration.preference.data.errors import InputError
from murmuration.preference.data.public_names import read_names
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.figures import interval
from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.theorems import Participation, Unit, select
from murmuration.strategies.contributions import clip_of
from murmuration.strategies.planning import RELEASED_ONCE, Planned
from murmuration.strategies.protocol.messages import TrainRequest
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved.whole_crowd import WholeCrowdPlan
from murmuration.strategies.spec import (
    BuiltStrategy,
    NodeHalf,
    RunContext,
    Strategy,
    clip_norm,
    grid_of_clip,
    sum_bytes,
)
from murmuration.strategies.steps.optimizers import SolvedModel
from murmuration.strategies.sums import SumStrategy
from murmuration.surveying.questionnaire import KIND, Questionnaire
from murmuration.surveying.release import SurveyRelease
from murmuration.surveying.settings import SurveySettings

if TYPE_CHECKING:
    from murmuration.surveying.answers import SurveyAnswers


@dataclass(frozen=True, kw_only=True)
class SurveyPlan(WholeCrowdPlan):
    """A plan in which each user takes part once, with one vector of length at most
    ``questionnaire.longest``.
    """

    questionnaire: Questionnaire

    @cached_property
    def clip(self) -> UserClip:
        """The bound on a user's vector."""
        return UserClip(self.questionnaire.longest)


def client_update(
    examples: SurveyAnswers, work: TrainRequest, keys_S: np.ndarray, source: Randomness
) -> dict[str, np.ndarray]:
    """The node half: ``sum``, over the asked users, of their clipped vectors, (V,).

    A pure function of its arguments; nothing is drawn. Raises KeyError or ValueError for parameters
    that are missing or wrong.
    """
    import torch

    del keys_S, source
    clip = clip_of(work)
    total_V = torch.zeros(examples.dimension, dtype=torch.float64)
    for chunk_CV in examples.vectors(work.users_S):
        total_V += clip.clip_sum(torch.from_numpy(chunk_CV))
    return {"sum": total_V.numpy()}


class Survey(SumStrategy):
    """The server half, with a ``SurveyPlan``; see ``SumStrategy``.

    The noisy sum takes the place of a model. ``stated_users`` is the published number of users;
    None if it is private.
    """

    name = "survey"
    plan: SurveyPlan
    optimizer: SolvedModel
    covers = "survey answers"

    def __init__(
        self, plan: SurveyPlan, ledger: Ledger, stated_users: int | None, **arguments: object
    ) -> None:
        super().__init__(plan, ledger, **arguments)  # type: ignore[arg-type]
        self._stated_users = stated_users

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Release the sum, charged to the ledger first."""
        return self.optimizer.set(self.release(round_, totals))

    def answers(self) -> SurveyRelease:
        """The release.

        Raises:
            ValueError: nothing was.
        """
        sum_V = self.optimizer.theta.numpy()
        if not sum_V.any():
            raise ValueError("no answers have been released")
        return SurveyRelease(
            topics=self.plan.questionnaire.topics,
            sum_V=sum_V.copy(),
            noise=self.plan.std,
            stated_users=self._stated_users,
            epsilon=self.plan.epsilon(),
            delta=self.plan.delta,
        )

    def outcome(self) -> Mapping[str, Shown[object]]:
        """The release, for the survey shown from the result."""
        if not self.optimizer.theta.any():
            return {}
        return {"survey": self.ledger.released(self.answers().to_json())}

    def notes(self) -> list[str]:
        """A note that nothing was learnt, if so."""
        if not self.optimizer.theta.any() or not self.answers().learnt_nothing:
            return []
        return ["NOTHING WAS LEARNT: the number of users with judgements is within its noise."]


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The strategy of one noisy sum of answers.

    Raises:
        InputError: settings that a survey does not use; or noise that exceeds the number of users,
            which is known before anything is spent.
    """
    config = context.config
    described = json.loads(context.features)
    if described["kind"] != KIND:
        raise InputError("--strategy survey asks its own questions, and learns on no features")
    if config.test or config.heldout:
        raise InputError(
            "--strategy survey asks everybody, and has no model to measure: --heldout 0, and no "
            "--test"
        )
    questionnaire = Questionnaire(tuple(described["topics"]))
    plan = SurveyPlan.for_epsilon(
        config.epsilon,
        **context.sizes,
        questionnaire=questionnaire,
    )
    if interval(plan.std) >= plan.users:
        raise InputError(
            f"nothing would be learnt: at --epsilon {config.epsilon:g} the noise on each number is "
            f"± {interval(plan.std):,.0f} users (95 %), and there are {plan.users:,}; nothing was "
            "spent. It takes a larger epsilon, or more people"
        )
    public = config.adjacency != Adjacency.ADD_REMOVE.value or config.users
    return BuiltStrategy.of(
        Survey(
            plan,
            ledger,
            plan.users if public else None,
            **context.arguments(SolvedModel(context.dimension)),
        ),
        plan,
        group_size=0,
        bytes_per_user=4.0 * context.dimension + sum_bytes(context) * context.dimension,
    )


_RULES = (
    Rule(
        lambda config, strategy: config.kind == "thumbs",
        "--strategy survey asks about comparisons; without --kind pairs are made of thumbs",
        ({"kind": None, "model": None},),
    ),
    Rule(
        lambda config, strategy: config.labels != "true",
        "--strategy survey takes true labels: --labels randomized are protected",
        (),
    ),
    Rule(
        lambda config, strategy: config.clip_norm,
        "--clip-norm follows from the number of questions",
        ({"clip_norm": None},),
    ),
    Rule(
        lambda config, strategy: (
            config.base or config.items or config.features != Settings.features
        ),
        "--strategy survey learns no model",
        ({"base": None, "features": None, "items": None},),
    ),
)


def features(settings: Settings) -> dict[str, Any]:
    """The config of the questions."""
    own = settings.of(SurveySettings)
    topics = read_names("--topics", "topic", own.topics) if own.topics else ()
    return Questionnaire(topics).to_config()


SURVEY = Strategy(
    name="survey",
    help="Ask the crowd about its data by one noisy sum of answers, before anything is learnt.",
    build=build,
    node_halves={
        "survey": NodeHalf(client_update, clip_norm, grid_of_clip, whole=True, model=False)
    },
    settings=SurveySettings,
    theorems=select(Unit.VECTOR, Participation.POISSON),
    rounds=(1,),
    rules=_RULES,
    solve=Planned(
        plan=SurveyPlan,
        free=RELEASED_ONCE,
        fields=lambda query, adjacency: {"questionnaire": Questionnaire()},
    ),
    features=features,
)
