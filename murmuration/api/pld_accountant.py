"""An accountant for the differential privacy that Flower brings, for any federated app.

    accountant = PldAccountant(config, ledger="ledger.jsonl")
    strategy = DifferentialPrivacyServerSideFixedClipping(
        FedAvg(...), noise_multiplier=1.0, clipping_norm=0.1, num_sampled_clients=100,
        accountant=accountant,
    )

Flower's protocol is ``flwr.serverapp.PrivacyAccountant``, and its unit is a client, which the
ledger calls a user. What a strategy of Flower's really samples, clips and adds is not checked here.
"""

from collections import Counter
from pathlib import Path
from typing import cast

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    PrivacySpent,
    SamplingMethod,
)

from murmuration.privacy.accounting import accountant, events
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.accounting.mixture import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency

_METHOD = "pld"


class PldAccountant:
    """Privacy spent by Gaussian releases, composed by privacy loss distributions.

    Formal guarantee: never below the ε of the composition of all that was composed, with every
    rounding upwards, under Flower's ``add-or-remove-one``; each release as if every client took
    part, or, where ``config`` says ``poisson``, amplified by independent draws with probability
    ``sample_size / population_size``.

    Args:
        config: of Flower. Its ``max_epsilon`` is the ledger's budget.
        ledger: a file, made if it is missing, that every release is written to before ``compose``
            returns. What stands in it counts from the start, so that nothing is forgotten by a
            server that was restarted; close it with ``close``.

    Raises:
        ValueError: sampling without replacement, of which we state no bound.
        LedgerError: the ledger is damaged, in use, or of another promise.
    """

    def __init__(self, config: PrivacyConfig, *, ledger: str | Path | None = None) -> None:
        if config.sampling_method is SamplingMethod.WITHOUT_REPLACEMENT:
            raise ValueError(
                "sampling_method='without-replacement' is not accounted for here: take "
                "'no-amplification', or 'poisson' if each client is drawn independently"
            )
        if config.neighboring_relation is not NeighboringRelation.ADD_OR_REMOVE_ONE:
            raise ValueError(f"{config.neighboring_relation} is not accounted for here")
        self._config = config
        self._composed: Counter[Event] = Counter()
        self._ledger: Ledger | None = None
        if ledger is not None:
            self._ledger = Ledger(
                Path(ledger),
                adjacency=Adjacency.ADD_REMOVE,
                delta=config.target_delta,
                budget=config.max_epsilon,
            )

    def close(self) -> None:
        """Let go of the ledger; every release is on disk already."""
        if self._ledger:
            self._ledger.close()

    @property
    def config(self) -> PrivacyConfig:
        """The configuration."""
        return self._config

    @property
    def num_releases(self) -> int:
        """The number of releases."""
        return self._spent.total()

    def compose(self, event: GaussianPrivacyEvent, count: int = 1) -> None:
        """Count ``count`` releases.

        Raises:
            ValueError: another population than that of ``config``, or no positive whole number.
            BudgetExceeded: there is a ledger, and its budget does not cover them. Those that it
                covered are written.
        """
        ours = self._ours(event, count)
        for _ in range(count):
            if self._ledger:
                self._ledger.charge(ours, round_=self.num_releases + 1, covers="flower")
            else:
                self._composed[ours] += 1

    def get_epsilon(self, delta: float) -> float:
        """The ε of all releases at ``delta``."""
        return accountant.epsilon(self._spent.items(), adjacency=Adjacency.ADD_REMOVE, delta=delta)

    def get_delta(self, epsilon: float) -> float:
        """The δ of all releases at ``epsilon``."""
        if not epsilon >= 0:
            raise ValueError(f"epsilon must be at least 0; got {epsilon}")
        return accountant.delta_for(epsilon, self._spent, adjacency=Adjacency.ADD_REMOVE)

    def get_privacy_spent(self, delta: float | None = None) -> PrivacySpent:
        """The cost of all releases at ``delta``; by default at the configured one."""
        delta = self._config.target_delta if delta is None else delta
        return PrivacySpent(self.get_epsilon(delta), delta, self.num_releases, _METHOD)

    def would_exceed(
        self, event: GaussianPrivacyEvent, max_epsilon: float | None = None, count: int = 1
    ) -> bool:
        """True if ``count`` more such releases cost more than ``max_epsilon``, by default the
        configured one.

        Raises:
            ValueError: as ``compose``; or neither says what the most is.
        """
        most = self._config.max_epsilon if max_epsilon is None else max_epsilon
        if most is None or not most > 0:
            raise ValueError("max_epsilon must be positive: give it here or in PrivacyConfig")
        then = self._spent + Counter({self._ours(event, count): count})
        return not most >= accountant.epsilon(
            then.items(), adjacency=Adjacency.ADD_REMOVE, delta=self._config.target_delta
        )

    def state_dict(self) -> dict[str, object]:
        """All releases, as JSON has them."""
        composed = [[events.to_json(event), count] for event, count in self._spent.items()]
        return {"backend": _METHOD, "config": repr(self._config), "compositions": composed}

    def load_state_dict(self, state: dict[str, object]) -> None:
        """Go on from a ``state_dict``. With a ledger, what stands there counts.

        Raises:
            ValueError: it is of another configuration or backend, damaged, lacks releases that
                were composed here, or knows releases that the ledger lacks.
        """
        if (state.get("backend"), state.get("config")) != (_METHOD, repr(self._config)):
            raise ValueError("the accountant's state is of another backend or configuration")
        try:
            pairs = cast(list[tuple[dict[str, object], int]], state["compositions"])
            restored = Counter[Event]()
            for event, count in pairs:
                restored[events.from_json(event)] += _positive(count)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the accountant's state is damaged: {error}") from None
        if self._ledger and not restored <= self._spent:
            raise ValueError(
                f"{self._ledger.path} lacks releases that the accountant's state has: it was "
                "rolled back or replaced; bring back an undamaged copy"
            )
        if not self._ledger and not self._spent <= restored:
            raise ValueError("the accountant's state is older than this accountant")
        self._composed = restored

    @property
    def _spent(self) -> Counter[Event]:
        return self._ledger.spent() if self._ledger else self._composed

    def _ours(self, event: GaussianPrivacyEvent, count: int) -> Event:
        _positive(count)
        if event.population_size != self._config.population_size:
            raise ValueError(
                f"population_size is {event.population_size}, and {self._config.population_size} "
                "in PrivacyConfig"
            )
        sampled = self._config.sampling_method is SamplingMethod.POISSON
        share = event.sample_size / event.population_size if sampled else 1.0
        return PoissonGaussian(share, event.noise_multiplier)


def _positive(count: object) -> int:
    if type(count) is not int or count < 1:
        raise ValueError(f"count must be a positive whole number; got {count!r}")
    return count
