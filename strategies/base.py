"""The server half that all sum-based strategies share: a cohort is drawn, asked and learnt from.

One round: a cohort is drawn over all users, each node with sampled users gets one message,
sums are added up, the strategy turns the total into a gradient (through the ledger,
if it is private), and the optimizer takes a step. Where rounds are few the strategy solves for a
model instead, in ``update``.

What goes wrong at a node never changes the denominator or the charge: it counts as zero
(``strategies.protocol.aggregation``). When so much goes wrong that nothing is learnt, the run ends
(``strategies.protocol.availability``).

Legend: S sampled users, D dimensions.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import BudgetExceeded, Ledger
from murmuration.privacy.disclosure import Shown
from murmuration.privacy.mechanisms.distributed import NodeNoise
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.privacy.mechanisms.sampling import Sampler
from murmuration.privacy.mechanisms.tally import Tally
from murmuration.strategies.protocol import aggregation, messages, secure_rounds
from murmuration.strategies.protocol.aggregation import CohortByNode, Expected
from murmuration.strategies.protocol.availability import (
    Attendance,
    RunAborted,
    wait_until_online,
)
from murmuration.strategies.protocol.exchange import (
    PrivateLog,
    RoundNotes,
    exchange,
    message_ttl,
)
from murmuration.strategies.protocol.stated_plan import PARAMETER
from murmuration.strategies.protocol.users import Registry
from murmuration.strategies.steps.charged_moves import ChargedMoves
from murmuration.strategies.steps.optimizers import ServerOptimizer, SolvedModel

#: How names in a strategy's ``state`` begin of what must not be released: a checkpoint keeps these
#: arrays in the run's private folder.
PRIVATE = "private/"


@dataclass(frozen=True)
class Participants:
    """The users of a run: the registry, with those trained on and those held out.

    ``share`` is the probability with which each user was held out by a secret draw; 0: not random.
    """

    registry: Registry
    train: np.ndarray
    held_out: np.ndarray
    share: float = 0.0

    @classmethod
    def all(cls, registry: Registry) -> "Participants":
        """Train on all users."""
        return cls(registry, registry.single, np.empty(0, dtype=np.int64))


class Plan(Protocol):
    """The sampling of a strategy, its cost, and its nodes' work; see ``strategies.sums``."""

    @property
    def sampler(self) -> Sampler:
        """Draws the cohort of each round."""
        ...

    @property
    def charges(self) -> Mapping[Event, int]:
        """The events of the whole run, with their counts."""
        ...

    @property
    def node_config(self) -> Mapping[str, messages.Scalar]:
        """The config sent to nodes: public constants."""
        ...


class CohortStrategy(Strategy):
    """A Flower Strategy over users instead of nodes; one subclass for each algorithm.

    Args:
        plan: what is sampled, and what it costs.
        ledger: is charged.
        participants: from ``Registry.ask``.
        optimizer: holds the model; ``SolvedModel`` for a strategy that ``solves``.
        source: of the cohort's sampling.
        features: the feature map's config as JSON, for the nodes.
        model: the name of the preference model, for the nodes.
        log: for values that must not be released.
        timeout: seconds to wait for the nodes of a round.
        min_nodes: the number of registered nodes that must be online before a round is sampled, or
            (below 1) their share; 0: any number.
        masked: let nodes' sums arrive under masks (``strategies.protocol.secure_rounds``).
        shared_passes: let nodes compute several users at once (``preference.linear.gradients``).

    Raises:
        BudgetExceeded: the ledger's budget does not cover the plan.
        TypeError: an optimizer of the other kind.
    """

    #: Name of the node half in ``strategies.registry``.
    name: str
    #: Names in ``shapes`` of which nodes answer with one row for each asked user, in their order,
    #: instead of a sum. The totals hold a row for each user of the cohort, zero until one comes.
    stacked: frozenset[str] = frozenset()
    #: What nodes are told of the plan; see ``strategies.protocol.stated_plan``.
    stated: str = ""
    #: Whether it solves for the model with everybody, in ``update``, instead of taking steps.
    solves: bool = True

    def __init__(
        self,
        plan: Plan,
        ledger: Ledger,
        *,
        participants: Participants,
        optimizer: ServerOptimizer | SolvedModel,
        source: Randomness,
        features: str,
        log: PrivateLog,
        model: str = "btl",
        timeout: float = 600.0,
        min_nodes: float = 0.0,
        masked: bool = False,
        shared_passes: bool = False,
    ) -> None:
        if isinstance(optimizer, SolvedModel) is not self.solves:
            kind = SolvedModel if self.solves else ServerOptimizer
            raise TypeError(f"{type(self).__name__} needs a {kind.__name__}")
        self.plan, self.ledger = plan, ledger
        self.participants = participants
        self.sampler, self.optimizer = plan.sampler, optimizer
        self.source, self.features, self.log, self.timeout = source, features, log, timeout
        self.model, self.min_nodes = model, min_nodes
        self.attendance = Attendance()
        self.shared_passes = shared_passes
        self.masked = masked
        self.rounds_done = 0
        self.interrupted = 0  # the round that nodes were asked in when the server died, if any
        self.unanswered = 0  # rounds of these of which somebody was asked, and nobody answered
        self.update_norm = 0.0
        self.stopped: str | None = None
        self._before_release: Callable[[], None] | None = None
        self._asked = CohortByNode()
        self.slow: set[int] = set()  # nodes that missed the last deadline: nobody waits for them
        ledger.clear(plan.charges)

    def check(self) -> None:
        """ValueError, saying what to change, if sums under masks could not be had as planned."""
        self._check_noise()
        if self.masked:
            share = (1.0 - self.participants.share) * self.sampler.probability
            everybody = self.node_noise() is not None
            secure_rounds.check_nodes(self.participants.registry, 1.0 if everybody else share)

    def _check_noise(self) -> None:
        if self.node_noise() is not None and not self.masked:
            raise ValueError(
                "noise by the nodes hides nothing if their sums arrive without masks: add "
                "--secure-aggregation, or use --noise discrete"
            )

    def parameters(self) -> Mapping[str, messages.Scalar]:
        """The parameters of the node half besides the model: public constants of the plan."""
        return self.plan.node_config

    @abstractmethod
    def is_valid(self, sums: Mapping[str, np.ndarray], users: int) -> bool:
        """True if ``users`` users, each within the bound, can have produced a node's sums."""

    @abstractmethod
    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Release from the exact totals of a round and move the model; the update's length.

        Raises:
            BudgetExceeded: this round must not happen; the model is unchanged.
        """

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The sums that a node answers with, by name; of what is ``stacked``, one user's row."""
        return {"sum": (len(self.optimizer.theta),)}

    def steps(self) -> Mapping[str, float]:
        """The grid of each of the sums, 0 for none; sums can be masked only where each has one."""
        return dict.fromkeys(self.shapes(), 0.0)

    def node_noise(self) -> NodeNoise | None:
        """The noise that nodes add to this round's sums before masking; None if they add none.

        With noise, every registered node answers in every round, with sampled users or without.
        """
        return None

    @property
    def is_fresh_draw(self) -> bool:
        """True if asking again in a round that was not charged would draw another cohort or noise.

        A round whose requests were sent is then released and charged in any case, as an empty round
        if need be. False in a simulation whose seed repeats the draw. False also if all users take
        part without sampling, and can be asked again without privacy cost, to solve for the model;
        but nodes that add noise of their own do not answer twice.
        """
        drawn = not self.solves or self.node_noise() is not None
        return drawn and not (self.source.seeded and self._simulated)

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Arrays sent to nodes besides the model: earlier releases only."""
        return {}

    def sample_cohort(self, round_: int) -> np.ndarray:
        """Indices (ascending) of the users that take part in a round."""
        train, names_N = self.participants.train, self.participants.registry.keys_N
        return train[self.sampler.draw(names_N[train], self.source, round_)]

    def asked_with(self, round_: int) -> dict[str, messages.Scalar]:
        """The parameters of a round's requests: public constants, and the stated plan."""
        parameters: dict[str, messages.Scalar] = {
            "strategy": self.name,
            "round": round_,
            "features": self.features,
            "model": self.model,
            "shared-passes": self.shared_passes,
            **self.parameters(),
            **messages.noise_parameters(self.node_noise()),
        }
        if self.source.draw:
            parameters[messages.DRAW] = self.source.draw
        return {**parameters, PARAMETER: self.stated} if self.stated else parameters

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message to each node with sampled users; to all nodes if their noise is needed."""
        del config, grid  # all parameters come from the plan
        users_S = self.sample_cohort(server_round)
        everybody = self.node_noise() is not None
        self._asked = CohortByNode()
        model = ArrayRecord({**arrays, **messages.array_record(self.arrays())})
        self.log({"round": server_round, "cohort": len(users_S)})
        parameters = self.asked_with(server_round)
        outgoing = []
        for node, asked in self.participants.registry.by_node(users_S, empty=everybody):
            self._asked.users[node] = len(asked)
            self._asked.first[node] = self._asked.total
            self._asked.total += len(asked)
            content = messages.work_request(model, parameters, asked)
            outgoing.append(
                messages.outgoing(content, "train", node, server_round, message_ttl(self.timeout))
            )
        self.attendance.begin(self._asked.total)
        return outgoing

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add up the admissible sums, release, and step; the new model.

        Raises:
            BudgetExceeded: the ledger refuses this round; the model is unchanged.
            RunAborted: nothing came of a round that can be asked again; it is not charged.
        """
        notes = self._round_notes(server_round)
        totals = aggregation.plain_totals(notes, self._expected, self._asked, replies)
        return self._move(server_round, totals), None

    def _move(self, round_: int, totals: Mapping[str, np.ndarray] | None) -> ArrayRecord:
        """Release from the totals, or from none if all users are left out, and move the model."""
        if totals is None:
            totals = self._expected.nothing(self._asked.total)
        if not self.is_fresh_draw:
            self.attendance.check_any()
        if self._before_release:
            self._before_release()
        self.update_norm = self.update(round_, totals)
        self.rounds_done = round_
        return messages.model_record(self.optimizer.theta_D)

    @property
    def _simulated(self) -> bool:
        return self.participants.registry.simulated

    @property
    def _expected(self) -> Expected:
        return Expected(self.shapes(), self.steps(), self.is_valid, self.stacked, self.node_noise())

    def _round_notes(self, round_: int, attendance: Attendance | None = None) -> RoundNotes:
        attendance = attendance or self.attendance
        return RoundNotes(round_, self.log, self.slow, attendance, self._simulated)

    def _replies(self, grid: Grid, outgoing: Iterable[Message]) -> Iterator[Message]:
        return exchange(grid, outgoing, self.timeout, self.slow, simulated=self._simulated)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """One message to each node with held-out users."""
        del config, grid
        held_out = self.participants.held_out
        parameters: dict[str, messages.Scalar] = {"features": self.features}
        if self.stated:
            parameters[PARAMETER] = self.stated
        for node, asked in self.participants.registry.by_node(held_out):
            content = messages.work_request(arrays, parameters, asked)
            yield messages.outgoing(
                content, "evaluate", node, server_round, message_ttl(self.timeout)
            )

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """None: an exact figure about held-out users is no metric. See ``tally``."""
        del server_round, replies

    def tally(self, grid: Grid, theta_D: np.ndarray, tally: Tally) -> np.ndarray:
        """Evaluate a model on all held-out users, (F,): exact sums, which may be released only with
        noise.

        A node that fails, or sends what its users cannot produce, counts as zero.
        """
        round_ = self.rounds_done
        outgoing = list(
            self.configure_evaluate(round_, messages.model_record(theta_D), ConfigRecord(), grid)
        )
        held_out = self.participants.held_out
        users = {node: len(mine) for node, mine in self.participants.registry.by_node(held_out)}
        self.log({"round": round_, "held out": len(held_out)})
        notes = self._round_notes(round_, Attendance())
        if self.masked:
            ask = secure_rounds.Asker(grid, self.timeout, notes)
            return aggregation.masked_tally(ask, tally, users, outgoing)
        return aggregation.plain_tally(notes, tally, users, self._replies(grid, outgoing))

    def state(self) -> dict[str, np.ndarray]:
        """The state that a resumed run needs, as arrays: the optimizer's and the strategy's own.

        They are valid until the next release, and share memory with arrays that training continues
        to use if they are long. Names of what was not released (exact sums, noise) begin with
        ``PRIVATE``.
        """
        return {**self.optimizer.state(), "unanswered": np.array([self.unanswered])}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue from ``state()``."""
        self.optimizer.restore(state)
        self.unanswered = int(state["unanswered"][0])

    def finish(self) -> None:
        """Called when the last round is done, before the result: charge what is planned anyway."""

    def figures(self) -> Mapping[str, Shown[float]]:
        """Other releases of the last round, and public figures, for the metrics.

        A "noise_norm" among them is the length of the noise in the last gradient.
        """
        return {}

    def outcome(self) -> Mapping[str, Shown[object]]:
        """Entries of the result about releases other than the model."""
        return {}

    def notes(self) -> list[str]:
        """Caveats for a reader of the result, as sentences."""
        return []

    def summary(self) -> None:
        """Print nothing: the run directory has everything."""

    def start(
        self,
        grid: Grid,
        *,
        initial_arrays: ArrayRecord | None = None,
        num_rounds: int = 3,
        timeout: float = 600.0,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        on_round: Callable[[int], None] | None = None,
        before_round: Callable[[int], None] | None = None,
        before_release: Callable[[], None] | None = None,
    ) -> Result:
        """Run rounds ``rounds_done + 1`` to ``num_rounds``; the optimizer holds the model.

        Ends early, with ``stopped`` saying why, if the ledger refuses a round. ``on_round`` is
        called after each round (checkpoints, metrics), ``before_round`` before each but the first
        (it may put other ``participants`` in place), ``before_release`` when the totals of a round
        are there and nothing of it is charged yet; ``evaluate_fn`` as in Flower.

        Raises:
            RunAborted: too few nodes are there or answer (``strategies.protocol.availability``). A
                round that was asked by then is charged, unless it can be asked again
                (``is_fresh_draw``).
            UnchargedMove: the model moved in a round that has no charge.
        """
        del timeout, evaluate_config
        moves = ChargedMoves(self.name, self.optimizer, self.ledger)
        self._before_release = before_release
        self._check_noise()
        arrays = initial_arrays or messages.model_record(self.optimizer.theta_D)
        result, config = Result(), train_config or ConfigRecord()
        first = self.rounds_done + 1
        for round_ in range(first, num_rounds + 1):
            if before_round and round_ > first:
                before_round(round_)
            nodes = self.participants.registry.nodes
            wait_until_online(grid, self.min_nodes, self.timeout, nodes)
            # From here on the coins are drawn, and what is done does not depend on who is there.
            try:
                if self._answered_before(round_):
                    updated = self._lost_round(round_)
                else:
                    # Charged before, and not stored: with other coins and noise, it is another.
                    self.source = self.source.again(self.ledger.draws(round_))
                    outgoing = self.configure_train(round_, arrays, config, grid)
                    updated = self._asked_round(round_, outgoing, grid)
            except BudgetExceeded as refusal:
                self.attendance.check_any()  # then it is no word about the data
                self.stopped = f"stopped before round {round_}: {refusal}"
                break
            moves.check(round_)
            arrays = updated or arrays
            if evaluate_fn and (metrics := evaluate_fn(round_, arrays)):
                result.evaluate_metrics_serverapp[round_] = metrics
            self.unanswered += not self.attendance.anybody
            if on_round:
                on_round(round_)
            self.attendance.end()
        self.finish()
        moves.check_still(self.rounds_done)
        result.arrays = messages.model_record(self.optimizer.result_D)
        return result

    def _answered_before(self, round_: int) -> bool:
        """True if nodes may have answered a round already, and would refuse to answer again."""
        deployed = not self._simulated
        return self.masked and self.is_fresh_draw and deployed and round_ == self.interrupted

    def _lost_round(self, round_: int) -> ArrayRecord:
        """A round under masks that a crash interrupted: all users are left out of it.

        Owners' agents do not answer it a second time, because the difference of two sums of one
        round would reveal single users.
        """
        self._asked = CohortByNode()
        self.attendance.begin(0)
        self.log({"round": round_, "left out": "everybody: it was asked before, under masks"})
        self.unanswered += 1
        return self._move(round_, None)

    def _asked_round(
        self, round_: int, outgoing: Iterable[Message], grid: Grid
    ) -> ArrayRecord | None:
        """Ask a cohort that is drawn; what the model is then. Raises as ``start``."""
        try:
            if self.masked:
                ask = secure_rounds.Asker(grid, self.timeout, self._round_notes(round_))
                terms = self._expected, self._asked, [*outgoing]
                return self._move(round_, aggregation.masked_totals(ask, *terms))
            return self.aggregate_train(round_, self._replies(grid, outgoing))[0]
        except RunAborted:  # a node of a simulation failed, or the round can be asked again
            if self.is_fresh_draw:
                with suppress(BudgetExceeded):  # it ends all the same
                    self._move(round_, None)
                    self.unanswered += 1
            raise


class SteppedStrategy(CohortStrategy):
    """A strategy that takes a step of the server's optimizer in each round."""

    solves = False

    @abstractmethod
    def gradient(self, round_: int, totals: Mapping[str, np.ndarray]) -> np.ndarray:
        """The averaged gradient that the model may see, from the exact totals of a round.

        Raises:
            BudgetExceeded: this round must not happen.
        """

    def update(self, round_: int, totals: Mapping[str, np.ndarray]) -> float:
        """Take one step with ``gradient``."""
        gradient_D = self.gradient(round_, totals)
        cast(ServerOptimizer, self.optimizer).step(round_, gradient_D)
        return float(np.linalg.norm(gradient_D))
