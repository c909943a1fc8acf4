"""Train on labels that leave their users randomized: one round, no trusted server.

Every node releases its users' labels through randomized response, once and for all
(``client.labels.memory``), and the server fits a model to these labels and to public features, or a
policy to public prompts and responses. The flip rate of every label comes with the label. Which
estimator: see ``preference.estimation.debiased`` and ``preference.estimation.projected_sgd``, for a
policy ``preference.policy_losses``.

Formal guarantee, under ``replace-labels``: (ε, δ) for all labels of one user together, δ = 0 unless
labels are released with one. It holds against the server, and for everything computed from the
released labels, except for held-out labels. Trusted: only the user's own node. Prompts, responses
and numbers of judgements are public.

Source: Chowdhury et al. 2024 ("L"), §4; AUP-RLHF, §4 (for whole users); Zhou et al. 2025 (square
loss).

Legend: S asked users, N released labels, J public judgements, D dimensions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.escaping import get_logger
from murmuration.preference.features.hashing import feature_map
from murmuration.preference.models import declared, preference_model
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.events import RandomizedLabels as LabelsTold
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.randomized_response import LabelPromise
from murmuration.privacy.mechanisms.sampling import PoissonSampler
from murmuration.privacy.theorems import Mechanism, Participation, Unit, find, select
from murmuration.strategies.base import CohortStrategy
from murmuration.strategies.protocol import label_queries, messages
from murmuration.strategies.protocol.public_items import PublicItems
from murmuration.strategies.protocol.users import RegistryError
from murmuration.strategies.settings.declaration import option
from murmuration.strategies.settings.own import LocalLabelSettings
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.solved.whole_crowd import FROM_ZERO
from murmuration.strategies.spec import BuiltStrategy, RunContext, Strategy
from murmuration.strategies.steps.optimizers import SolvedModel

if TYPE_CHECKING:
    import torch

    from murmuration.preference.estimation.randomized_labels import RandomizedLabels
    from murmuration.preference.linear.examples import PairExamples

_log = get_logger("murmuration")

Estimator = Literal["debiased", "mle", "sgd", "square"]
#: ‖θ‖ is at most this over the root mean square of ‖x‖: the most that a judgement's log-odds may
#: be, typically. For small ε a de-biased loss falls for ever in some direction.
_MOST_LOG_ODDS = 30.0


@dataclass(frozen=True)
class Estimate:
    """The settings of a fit to randomized labels; all of it is post-processing.

    Attributes:
        estimator: its name.
        model: of preferences, as in ``--model``.
        ridge: added curvature; 0: the mean of ‖x‖², so that a judgement's log-odds are about one if
            labels have no information. ``sgd`` has none.

    Raises ValueError for an invalid ridge, or a model that the estimator cannot fit.
    """

    estimator: Estimator = "debiased"
    model: str = "btl"
    ridge: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ridge) and self.ridge >= 0.0):
            raise ValueError(f"--ridge must be a positive number, got {self.ridge}")
        if self.estimator == "sgd" and not declared(self.model).logistic:
            raise ValueError("--estimator sgd is for --model btl and plackett-luce; use debiased")

    def of(self, labels: RandomizedLabels) -> tuple[torch.Tensor, list[str]]:
        """The model (D,) and what its reader must know."""
        from murmuration.preference.estimation.debiased import fit
        from murmuration.preference.estimation.projected_sgd import one_pass
        from murmuration.preference.estimation.randomized_labels import link_of

        square = float((labels.x_JWD**2).sum(-1)[labels.present_JW].mean())
        ball = _MOST_LOG_ODDS / math.sqrt(max(square, 1e-12))
        if self.estimator != "mle":  # the likelihood weighs them by itself
            labels = labels.weighted_by_information()
        if self.estimator == "sgd":
            return one_pass(labels, ball=ball), []
        result = fit(
            labels,
            self.estimator,
            ball=ball,
            ridge=self.ridge or max(square, 1e-12),
            link=link_of(self.model),
        )
        notes = []
        if result.on_sphere.any():
            notes.append(
                f"The estimate lies on the ball ‖θ‖ = {ball:.3g}: the bound and not the data "
                "decides its length. Compare with a larger --ridge."
            )
        if not result.converged:
            notes.append("The minimisation stopped before it converged.")
        return result.theta_D, notes


@dataclass(frozen=True, eq=False)
class Told:
    """N randomized labels: the public judgement of each, the response stated, and the flip
    probability.

    ``rows_N`` are places among all judgements, ``answers_N`` places among the responses in their
    canonical order, of which there are ``choices_N``; with probability ``flips_N`` the answer is
    not the true one.
    """

    rows_N: np.ndarray
    answers_N: np.ndarray
    flips_N: np.ndarray
    choices_N: np.ndarray

    def __len__(self) -> int:
        return len(self.rows_N)

    @classmethod
    def joined(cls, parts: Sequence[Told]) -> Told:
        """The labels of several, concatenated in order."""
        return cls(
            *(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls))
        )

    @property
    def contrast_N(self) -> np.ndarray:
        """The probability of stating the true response less that of any given other; for pairs
        1/c(ε), of Zhou et al. 2025.
        """
        return 1.0 - self.flips_N - self.flips_N / (self.choices_N - 1)

    @property
    def in_words(self) -> str:
        """A sentence on the information in all labels: post-processing of public flip
        probabilities.
        """
        c, worth = 1.0 / np.median(self.contrast_N), float((self.contrast_N**2).sum())
        return (
            f"{len(self):,} labels were released. To correct for randomized response, the median "
            f"one is multiplied by c = {c:.3g}, and so is its noise. Together they are worth about "
            f"{worth:,.0f} true labels."
        )

    def judgements(self, items: PublicItems) -> Judgements:
        """The labels as judgements of a single nominal user, with the stated response first."""
        rows, answers = self.rows_N.tolist(), self.answers_N.tolist()
        shown = [items.responses[row] for row in rows]
        return Judgements(
            user_ids=("everybody",),
            start_U=np.array([0, len(rows)]),
            prompts=[items.prompts[row] for row in rows],
            responses=[
                (given[best], *given[:best], *given[best + 1 :])
                for given, best in zip(shown, answers, strict=True)
            ],
            y_R=np.ones(len(rows), dtype=np.float32),
            kind=items.schema.kind,
            most_responses=items.schema.responses,
            flip_R=self.flips_N,
        )


#: From what was told to the model (D,) and what its reader must know.
Solve = Callable[[Told], tuple[np.ndarray, list[str]]]


_PARTS = (Unit.EACH_LABEL, Participation.ONCE, Mechanism.RANDOMIZED_RESPONSE)


@dataclass(frozen=True)
class LocalLabelPlan:
    """The promise to users, and their number."""

    promise: LabelPromise
    users: int
    adjacency: Adjacency = Adjacency.REPLACE_LABELS

    sampler = PoissonSampler(1.0)  # everybody is asked

    def __post_init__(self) -> None:
        find(*_PARTS, self.adjacency)
        if self.users < 1:
            raise ValueError(f"there must be users with labels: {self.users}")

    @property
    def charges(self) -> dict[Event, int]:
        """The event of one user's labels."""
        return {LabelsTold(self.promise.epsilon, self.promise.delta): 1}

    @property
    def node_config(self) -> Mapping[str, messages.Scalar]:
        """The promise to users: nodes are asked for labels, not for gradients."""
        return self.promise.to_config()


class LocalLabel(CohortStrategy):
    """The server half.

    Args:
        plan: what is promised.
        ledger: is charged what the labels of one user cost.
        items: what was shown to the users trained on, in their order.
        solve: fits the model to what was told of these items.

    Other arguments and what is raised as in ``CohortStrategy``.
    """

    name = "local-label"
    plan: LocalLabelPlan
    optimizer: SolvedModel

    def __init__(
        self,
        plan: LocalLabelPlan,
        ledger: Ledger,
        items: PublicItems,
        solve: Solve,
        **arguments: Any,
    ) -> None:
        super().__init__(plan, ledger, **arguments)
        self.items, self._solve = items, solve
        self._asked_users: dict[int, slice] = {}
        self._notes: list[str] = []

    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """No: nothing is summed."""
        return False

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """No change: nothing is summed, and the model is fitted in ``aggregate_train``."""
        return 0.0

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every node for its users' labels, charged first; no model is sent.

        Raises:
            BudgetExceeded: the ledger refuses.
        """
        del arrays, config, grid
        (event,) = self.plan.charges
        # Nodes tell a label once: whoever asks again gets the same, and nothing more is spent.
        self.ledger.charge_once(event, round_=server_round, covers="labels")
        outgoing, first = [], 0
        for node, asked in self.participants.registry.by_node(self.sample_cohort(server_round)):
            self._asked_users[node] = slice(first, first + len(asked))
            first += len(asked)
            content = label_queries.request(self.plan.promise, asked)
            outgoing.append(messages.outgoing(content, label_queries.QUERY, node, server_round))
        self.attendance.begin(first)
        return outgoing

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Fit the model to what was told. A node that told nothing usable is left out.

        Raises:
            RunAborted: no node told a label.
        """
        told: dict[int, Told] = {}
        for reply in replies:
            node = reply.metadata.src_node_id
            try:
                content = messages.content_of(reply)
                asked = self._asked_users[node]
                told[node] = self._told(content, asked)
                if len(told[node]):
                    self.attendance.counted(asked.stop - asked.start)
            except (messages.MalformedReply, RegistryError) as error:
                self._round_notes(server_round).leave_out(node, str(error))
        # In the order of asking, so that nothing depends on who was faster.
        parts = [told[node] for node in self._asked_users if node in told and len(told[node])]
        self.attendance.check_any()
        together = Told.joined(parts)
        theta_D, notes = self._solve(together)
        self._notes = [together.in_words, *notes]
        self.update_norm = self.optimizer.set(theta_D)
        self.rounds_done = server_round
        return messages.model_record(self.optimizer.theta_D), None

    def _told(self, content: RecordDict, users: slice) -> Told:
        """A node's labels and what they are about; MalformedReply or RegistryError if unusable."""
        asked = users.stop - users.start
        labels = label_queries.read_reply(content, asked)
        label_queries.check_promise(labels, self.plan.promise)
        rows_N = label_queries.places(labels, self.items.select(users))
        rows_N += int(self.items.start_S[users.start])
        told = Told(rows_N, labels.answers_N, labels.flips_N, labels.choices_N)
        if not ((told.answers_N >= 0) & (told.answers_N < told.choices_N)).all():
            raise messages.MalformedReply("a stated response is not among those that were shown")
        return told

    def notes(self) -> list[str]:
        """About the estimate."""
        return list(self._notes)


# Training on labels that leave their users randomized, from settings.

#: Of a label on its way: its item, the answer, and how many could have been given.
_LABEL_BYTES = 8 + 1 + 1


def label_promise(config: Settings) -> LabelPromise:
    """The promise to users about their labels; InputError if the settings allow none."""
    own = config.of(LocalLabelSettings)
    try:
        return LabelPromise(
            epsilon=config.epsilon,
            cap=own.label_cap,
            delta=own.label_delta,
        )
    except ValueError as error:
        raise InputError(f"--epsilon, --label-cap, --label-delta: {error}") from None


def build(context: RunContext, ledger: Ledger) -> BuiltStrategy:
    """The strategy of one round of randomized labels, and a fit to public items."""
    config, participants = context.config, context.participants
    promise = label_promise(config)
    items = PublicItems.ask(
        context.grid,
        participants.registry,
        participants.train,
        schema=context.config.schema,
        timeout=config.timeout,
    )
    if items.schema.kind == "ranking":
        raise InputError(
            "--strategy local-label takes pairs or the best of several: a whole ranking is no "
            "single label"
        )
    solve = (_policy if config.task == "policy" else _linear)(context, items)
    plan = LocalLabelPlan(promise, context.users, Adjacency(config.adjacency))
    shown_S = np.diff(items.start_S)
    told_S = np.minimum(shown_S, promise.cap) if promise.cap else shown_S
    return BuiltStrategy(
        strategy=LocalLabel(
            plan, ledger, items, solve, **context.arguments(SolvedModel(context.dimension))
        ),
        charges=plan.charges,
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=int(told_S.max()),
        noise=0.0,
        gradients=context.users,
        bytes_per_user=(items.bytes + float(told_S.sum()) * _LABEL_BYTES) / len(participants.train)
        + 16,
    )


def on_features(estimate: Estimate, examples: PairExamples) -> Solve:
    """Fits a linear head, by the features of all items."""
    import torch

    from murmuration.preference.estimation.randomized_labels import RandomizedLabels

    x_JWD = examples.x_RD.view(-1, examples.width, examples.dimension)

    def solve(told: Told) -> tuple[np.ndarray, list[str]]:
        labels = RandomizedLabels.of_choices(
            x_JWD[torch.from_numpy(told.rows_N)],
            torch.from_numpy(told.answers_N),
            torch.from_numpy(told.flips_N),
            torch.from_numpy(told.choices_N),
        )
        theta_D, notes = estimate.of(labels)
        return theta_D.numpy(), notes

    return solve


def _linear(context: RunContext, items: PublicItems) -> Solve:
    """The function that fits a linear head; InputError for a model that cannot be fitted."""
    config, own = context.config, context.config.of(LocalLabelSettings)
    examples = items.examples(feature_map(json.loads(context.features)))
    preference_model(config.model, examples.kind, examples.width)  # refuses a model of pairs
    estimate = Estimate(
        estimator=own.estimator or "debiased",  # type: ignore[arg-type]
        model=config.model,
        ridge=own.ridge,
    )
    return on_features(estimate, examples)


def _policy(context: RunContext, items: PublicItems) -> Solve:
    """The function that fits a policy."""
    from murmuration.preference.kinds.policy import PolicyModel
    from murmuration.preference.language.examples.policies import policy_loss
    from murmuration.preference.language.policy_fit import FIT_RATES, PolicyFit

    config, own = context.config, context.config.of(LocalLabelSettings)
    policy = PolicyModel.load(json.loads(context.features), weights=True)
    loss, model = (
        policy_loss(policy.network),
        preference_model(config.model, items.schema.kind, items.schema.responses - 1),
    )
    corrects = loss.objective.unbiased
    rate = config.learning_rate or FIT_RATES[config.train or "lora"]
    fit = PolicyFit(epochs=own.epochs or PolicyFit.epochs, rate=rate)

    def solve(told: Told) -> tuple[np.ndarray, list[str]]:
        examples = policy.examples(told.judgements(items))
        # As ``RandomizedLabels.weighted_by_information``.
        weight_N = told.contrast_N**2 if corrects else None

        def progress(step: int, steps: int) -> None:
            if step % max(1, steps // 10) == 0:
                _log.info("policy: step %d of %d", step, steps)

        return fit(examples, weight_N, model, progress), []

    return solve


def _of_a_linear_head(name: str) -> Rule:
    return Rule(
        lambda config, strategy: config.task == "policy" and getattr(config.own, name),
        f"{option(name)} is about a linear head; of a policy --loss says how it is fitted",
        ({name: None},),
    )


_RULES = (
    FROM_ZERO,
    *map(_of_a_linear_head, ("estimator", "ridge")),
    Rule(
        lambda config, strategy: config.task != "policy" and config.of(LocalLabelSettings).epochs,
        "--epochs is about --task policy",
        ({"epochs": None},),
    ),
    Rule(
        lambda config, strategy: config.once_per_text,
        "--once-per-text is about users' gradients, of which local-label has none",
        ({"once_per_text": None},),
    ),
    Rule(
        lambda config, strategy: 0 < config.delta < config.of(LocalLabelSettings).label_delta,
        "--label-delta {label_delta:g} is more than --delta {delta:g}, which it is part of",
        ({"label_delta": None},),
    ),
)

LOCAL_LABEL = Strategy(
    name="local-label",
    help="Training on labels that leave their users randomized: one round, no trusted server.",
    build=build,
    settings=LocalLabelSettings,
    theorems=select(*_PARTS),
    rounds=(1,),
    rules=_RULES,
    fits_policies=True,
)
