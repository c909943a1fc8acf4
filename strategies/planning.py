"""The cost of a run, before any data are read: ``murmuration plan``, for every strategy.

Six numbers hang together: epsilon, noise multiplier, rounds, cohort, users and delta. Five are
given, the sixth follows. A strategy says in its file which of them its plan takes and which can be
solved for (``Planned``); the plan's own charges decide.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from murmuration.preference.data.errors import InputError
from murmuration.privacy import attack_bounds
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.strategies.settings.declaration import option
from murmuration.strategies.settings.own import NoSettings, Sampled
from murmuration.strategies.sums import SumPlan

SIX = ("epsilon", "noise_multiplier", "rounds", "cohort", "users", "delta")
#: Where all users are in few rounds: the numbers of which one is left out.
RELEASED_ONCE = ("epsilon", "noise_multiplier", "delta")
#: Where users are sampled: what their plans need.
SAMPLED = ("users", "cohort", "rounds", "delta")
#: Where epsilon is divided among several releases: the noise of the sum alone is solved for.
NOISE = ("noise_multiplier",)
#: Largest numbers that are looked for: of more users the sum would not be exact.
_MOST = {"rounds": 1_000_000, "users": 2**23}


@dataclass(frozen=True, kw_only=True)
class PlanQuery:
    """The given numbers of a plan; None for those not given.

    ``hold_out`` is the random hold-out, if any; ``settings`` are the strategy's own. ``own`` has
    the given values of ``settings.plan_options``.
    """

    strategy: str
    users: int | None = None
    group_size: int | None = None
    sampling_probability: float | None = None
    cohort: int | None = None
    rounds: int | None = None
    delta: float | None = None
    epsilon: float | None = None
    noise_multiplier: float | None = None
    hold_out: HoldOut | None = None
    settings: object = NoSettings()
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sampled(self) -> Sampled:
        """Its settings of sampling and correlated noise."""
        return self.settings if isinstance(self.settings, Sampled) else Sampled()

    @property
    def numbers(self) -> dict[str, Any]:
        """The given numbers."""
        names = (*SIX, "group_size", "sampling_probability")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


#: From a query to all numbers of the plan, and sentences by their names.
Solve = Callable[[PlanQuery, Adjacency], dict[str, Any]]


def not_planned(query: PlanQuery, adjacency: Adjacency) -> dict[str, float]:
    """The ``solve`` of strategies that add no noise to a sum; raises InputError."""
    raise InputError(
        f"--strategy {query.strategy} adds no noise to a sum: there is nothing to plan"
    )


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A strategy's plan from the numbers of a query; calling it solves for the missing one.

    Attributes:
        plan: the class of the plan.
        takes: numbers that it needs, besides epsilon and the noise multiplier.
        free: numbers of which exactly one is left out, to be solved for.
        allowed: further numbers, which ``fields`` reads.
        fields: further fields of the plan; InputError for numbers that cannot be.
        tells: figures of a plan besides the six, also from the query.
    """

    plan: type[SumPlan]
    takes: tuple[str, ...] = ("users", "rounds", "delta")
    free: tuple[str, ...] = ("epsilon", "noise_multiplier")
    allowed: tuple[str, ...] = ()
    fields: Callable[[PlanQuery, Adjacency], dict[str, Any]] = lambda query, adjacency: {}
    tells: Callable[[Any, PlanQuery], dict[str, Any]] = lambda plan, query: {}

    def __call__(self, query: PlanQuery, adjacency: Adjacency) -> dict[str, Any]:
        """All numbers, with the missing one solved for.

        Raises:
            InputError: a number that is missing, invalid or has no meaning here.
            ValueError: no plan meets the rest.
            Unsupported: there is no guarantee under ``adjacency``.
        """
        given, missing = self.numbers(query)
        fields = {name: given[name] for name in self.takes if name in given}
        fields |= {"adjacency": adjacency, "hold_out": query.hold_out}
        fields |= self.fields(query, adjacency)
        plan = self._solved(missing, given, fields)
        epsilon = plan.epsilon() if missing in ("epsilon", *_WHOLE) else given["epsilon"]
        cohort = getattr(plan, "cohort", query.cohort if self.allowed else plan.users)
        return {
            **{name: value for name, value in query.numbers.items() if name not in SIX},
            "epsilon": epsilon,
            "noise_multiplier": plan.noise_multiplier,
            "rounds": plan.rounds,
            **({"cohort": cohort} if cohort else {}),
            "users": plan.users,
            "delta": plan.delta,
            **self.tells(plan, query),
            **attack_figures(plan.charges, adjacency=adjacency, epsilon=epsilon, delta=plan.delta),
        }

    def numbers(self, query: PlanQuery) -> tuple[dict[str, Any], str]:
        """The given numbers, and the name of the missing one; InputError as for a call."""
        given = query.numbers
        rounds = self.plan.possible_rounds  # the first by default
        if rounds and given.setdefault("rounds", rounds[0]) not in rounds:
            listed = " or ".join(map(str, rounds))
            raise InputError(
                f"--strategy {query.strategy} takes --rounds {listed}, not {given['rounds']}"
            )
        known = {"epsilon", "noise_multiplier", *self.takes, *self.free, *self.allowed}
        for name, value in given.items():
            if name not in known:
                why = "everybody takes part" if name == "cohort" else "it costs nothing"
                raise InputError(
                    f"{option(name)} has no meaning for --strategy {query.strategy}, where {why}: "
                    "leave it out"
                )
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"{option(name)} must be positive; got {value}")
        if given.get("cohort", 0) > given.get("users", math.inf):
            raise InputError(f"--cohort {given['cohort']} is more than --users {given['users']}")
        if given.get("delta", 0.5) >= 1:
            raise InputError(f"--delta must be below 1; got {given['delta']}")
        return given, self._missing(query, given)

    def _missing(self, query: PlanQuery, given: Mapping[str, Any]) -> str:
        """The number to solve for."""
        missing = [name for name in self.free if name not in given]
        needed = [name for name in ("epsilon", *self.takes) if name not in (*given, *self.free)]
        free = ", ".join(map(option, missing or self.free))
        if needed:
            raise InputError(
                f"--strategy {query.strategy} needs {', '.join(map(option, needed))}, to solve "
                f"for {free}"
            )
        if len(missing) != 1:
            one = "exactly one of " if len(self.free) > 1 else ""
            # Others take other numbers than these.
            rest = ", as in --epsilon 3 --delta 1e-5 --rounds 200 --users 2700"
            raise InputError(
                f"--strategy {query.strategy}: leave out {one}{free}, to solve for it, and give "
                f"the rest{rest if self.free == SIX else ''}"
            )
        return missing[0]

    def _solved(self, missing: str, given: Mapping[str, Any], fields: Mapping[str, Any]) -> SumPlan:
        if missing == "noise_multiplier":
            return self.plan.for_epsilon(given["epsilon"], **fields)
        fields = {**fields, "noise_multiplier": given["noise_multiplier"]}
        if missing == "epsilon":
            return self.plan(**fields)
        if missing == "delta":
            if fields["hold_out"]:
                raise InputError(
                    "--delta is not solved for with --heldout: give it, and leave out another"
                )
            plan, adjacency = self.plan(**fields, delta=_ANY_DELTA), fields["adjacency"]
            delta = accountant.delta_for(given["epsilon"], plan.charges, adjacency=adjacency)
            return dataclasses.replace(plan, delta=delta)

        def plan_of(number: int) -> SumPlan:
            changed: dict[str, Any] = {**fields, missing: number}
            return self.plan(**changed)

        def fits(number: int) -> bool:
            try:
                return plan_of(number).epsilon() <= given["epsilon"]
            except ValueError:  # there is no such plan, or nothing can be said of it
                return False

        if missing == "users":
            number = _first(fits, given["cohort"], _MOST["users"])
        else:
            number = largest(fits, given["users"] if missing == "cohort" else _MOST[missing])
        if number < 1:
            raise InputError(
                f"no number of {missing} meets epsilon = {given['epsilon']:g}; add noise"
            )
        return plan_of(number)


#: Whole numbers rarely meet epsilon exactly: what is really spent is said.
_WHOLE = ("rounds", "cohort", "users")
_ANY_DELTA = 1e-5


def attack_figures(
    charges: Mapping[Event, int], *, adjacency: Adjacency, epsilon: float, delta: float
) -> dict[str, float]:
    """Upper bounds on attacks against a run of this plan; ``epsilon`` is its budget."""
    bounds = attack_bounds.of_run(
        charges.items(), adjacency=adjacency, epsilon=epsilon, delta=delta
    )
    figures = dataclasses.asdict(bounds)
    return {name: value for name, value in figures.items() if value is not None}


def largest(fits: Callable[[int], bool], most: int) -> int:
    """The largest number up to ``most`` that fits, 0 if none; ``fits`` turns false once."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, high * 2
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _first(fits: Callable[[int], bool], start: int, most: int) -> int:
    """The smallest number from ``start`` on that fits, 0 if none up to ``most`` does."""
    low, high = start - 1, start
    while not fits(high):
        if high >= most:
            return 0
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
