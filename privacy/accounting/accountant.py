"""From events to (epsilon, delta), and back from a target to the parameter that meets it.

Composition is by privacy loss distributions (connect-the-dots discretization, which errs on the
safe side; ``dp_accounting`` is the oracle in the tests). Nothing here looks at data.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from murmuration.privacy.accounting import group_privacy
from murmuration.privacy.accounting.composition import INTERVAL, composed_epsilon, composition
from murmuration.privacy.accounting.events import (
    BufferedGaussian,
    Event,
    GroupGaussian,
    PoissonGaussian,
    PureChoice,
    RandomizedLabels,
    RandomStopping,
    by_part,
    examples_of,
    group_of,
    noise_of,
    of_one_group,
    of_several_runs,
)
from murmuration.privacy.accounting.mixture import MOST_OF_ONE_COIN, MOST_POINTS
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms import hold_out
from murmuration.privacy.mechanisms.hold_out import HoldOut, charges_of

_COARSE = 1e-3
#: Bounds on a noise multiplier, tried in turn; too little noise can be very slow to account for.
_LADDER = tuple(4.0**k for k in range(12, -1, -1))
#: Grid points, once for each number of a user's examples that can be in a round and ``_EACH`` times
#: more, that are computed for one epsilon: half a minute or so. More is refused.
MOST_WORK, _EACH = 6e8, 20
#: Every different event counts as so many points at least, and a candidate of a search as so many
#: of its rounds.
_LEAST_POINTS, _CANDIDATE = 1e5, 3
#: Examples of a user beyond this are not even counted.
_MOST_GROUP = 1_000_000
#: What is beyond this many standard deviations, or less likely, is cut off.
_FAR, _RARE = 10.0, 1e-25


def epsilon(
    *runs: Iterable[tuple[Event, int]],
    adjacency: Adjacency,
    delta: float,
    interval: float = INTERVAL,
) -> float:
    """The smallest epsilon for which all of ``runs`` together are (epsilon, delta)-DP.

    Each is the events of one run, as ``(event, times)``: events of several runs are never handed in
    as one's, since a random division or hold-out of users is that of one run. For several runs,
    every user counts as exposed to everything (``events.of_several_runs``).

    Returns 0 for nothing released and infinity for an unprotected release. What is accounted by
    group privacy has no privacy loss distribution: it is converted by itself, and if there is
    anything else, the parts share ``delta`` equally and their epsilons add up. Events on disjoint
    parts of the users (``events.by_part``) cost as much as the most expensive part. The ε of a
    choice (``PureChoice``) is added to everything else. Where users are held out by a secret random
    assignment, nobody is exposed to both halves (``privacy.mechanisms.hold_out``).

    Raises:
        ValueError: the events of several runs were handed in as one's, as far as that can be seen;
            or it would take minutes (``check_work``).
    """
    _check_delta(delta)
    events, coins = _together(runs)
    check_work(events, adjacency, interval)
    if coins is None:
        return _of_run(events, adjacency, delta, interval)
    return _with_held_out(coins, events, adjacency, delta, interval)


def curve(
    run: Iterable[tuple[Event, int]],
    *,
    adjacency: Adjacency,
    delta: float,
    interval: float = INTERVAL,
) -> hold_out.Profile | None:
    """Delta of one run at any epsilon ≥ 0, for neighbours in either order: an upper bound.

    It is tight around ``delta`` and errs upward elsewhere. None where nothing but points is known
    (group privacy). Where users are held out it rests on a secret random assignment, under every
    relation.
    """
    _check_delta(delta)
    events, coins = _together([run])
    check_work(events, adjacency, interval)
    profile = _profile(events, adjacency, delta, interval)
    if coins is None or profile is None:
        return profile
    if adjacency.vectors_changed == 1 and not _shows_coins(events):
        return lambda target: hold_out.mixed_delta(target, coins, profile)
    # The draw is the same in both worlds, or is seen: the divergence is jointly convex.
    return lambda target: (
        (1.0 - coins.share) * profile(target) + coins.share * coins.delta_alone(target)
    )


def work_of(event: Event, adjacency: Adjacency) -> tuple[int, float]:
    """The work per grid point of a noisy sum, and the span of its losses."""
    mass_K = examples_of(event)[1]
    k_K = np.flatnonzero(mass_K > _RARE)
    with np.errstate(over="ignore", invalid="ignore"):
        log_mass_K = np.log(mass_K[k_K])
        centre_K = adjacency.vectors_changed * k_K / noise_of(event)
        far = centre_K[-1] + _FAR
        top = float((log_mass_K + centre_K * (far - centre_K / 2.0)).max())
        bottom = float((log_mass_K - centre_K * (_FAR + centre_K / 2.0)).max())
    span = top - bottom
    return len(k_K) + _EACH, math.inf if math.isnan(span) else span


def check_work(
    events: Iterable[tuple[Event, int]], adjacency: Adjacency, interval: float = INTERVAL
) -> None:
    """ValueError for what would take minutes or gigabytes to account for, before it is begun.

    How long events of other packages take is not known here.
    """
    total, known = 0.0, dict[Event, float]()
    for event, _ in itertools.chain(*by_part(events)):
        if event not in known:
            known[event] = _work(event, adjacency, interval)
        total += known[event]
        if total > MOST_WORK:
            largest = max(known, key=known.__getitem__)
            raise ValueError(
                f"to account for it would take minutes: {len(known)} different events or more, the "
                f"longest a {largest.kind}; more noise, smaller groups or fewer runs "
                "together take less"
            )


def _work(event: Event, adjacency: Adjacency, interval: float) -> float:
    """Return about how many numbers are computed for an event."""
    if isinstance(event, RandomStopping):
        return sum(
            _CANDIDATE * _work(one.gaussian, adjacency, interval) for one in event.candidates
        )
    if math.isinf(noise_of(event)):  # two losses
        return _LEAST_POINTS * _EACH
    if (size := group_of(event)) > _MOST_GROUP:
        return math.inf
    numbers, span = work_of(event, adjacency)
    most = MOST_OF_ONE_COIN if size == 1 else MOST_POINTS
    return numbers * min(max(span / interval, _LEAST_POINTS), most)


def _together(
    runs: Sequence[Iterable[tuple[Event, int]]],
) -> tuple[list[tuple[Event, int]], HoldOut | None]:
    """The events of one run, and its hold-out, if it has one."""
    released = [[(event, times) for event, times in run if times] for run in runs]
    released = [run for run in released if run]
    parted = [hold_out.split(run) for run in released]
    for _, held in parted:
        hold_out.check_one_run(held)
    if len(parted) == 1:
        ((events, held),) = parted
        coins = hold_out.together(held) if held else None
        if coins or not held:
            return events, coins
    return of_several_runs(itertools.chain(*map(of_one_group, released))), None


def _with_held_out(
    coins: HoldOut,
    events: list[tuple[Event, int]],
    adjacency: Adjacency,
    delta: float,
    interval: float,
) -> float:
    """Epsilon of a run and of what is said of its held-out users."""
    if adjacency.vectors_changed == 2 or _shows_coins(events):
        return max(coins.epsilon, _of_run(events, adjacency, delta, interval))
    profile = _profile(events, adjacency, delta, interval)
    if profile is None:
        return hold_out.mixed_point(
            coins, lambda part: _of_run(events, adjacency, part, interval), delta
        )
    return hold_out.mixed_epsilon(coins, profile, delta)


def _shows_coins(events: Iterable[tuple[Event, int]]) -> bool:
    """True if the turn of each user is known, so that to be asked shows that one is not held
    out."""
    return any(isinstance(event, BufferedGaussian) for event, _ in events)


def _profile(
    events: list[tuple[Event, int]], adjacency: Adjacency, delta: float, interval: float
) -> hold_out.Profile | None:
    """δ of a run at any ε, tight around ``delta``; of group privacy there are points only."""
    parts = by_part(events)
    if any(isinstance(event, GroupGaussian) for part in parts for event, _ in part):
        return None
    curves = [_curve(part, adjacency, delta, interval) for part in parts]
    return lambda target: max(curve(target) for curve in curves)


def _curve(
    events: list[tuple[Event, int]], adjacency: Adjacency, delta: float, interval: float
) -> hold_out.Profile:
    """δ at any ε of what a user of one part is exposed to."""
    choices, rest = _choices(events)
    total = composition(rest, adjacency=adjacency, interval=interval)
    if total is None:
        return lambda target: 1.0 if target < choices else 0.0
    after = total.near(delta)
    return lambda target: 1.0 if target < choices else after(target - choices)


def _choices(events: list[tuple[Event, int]]) -> tuple[float, list[tuple[Event, int]]]:
    """Split events into the total ε of private choices, and all others."""
    chosen = [(e.epsilon, times) for e, times in events if isinstance(e, PureChoice)]
    rest = [(event, times) for event, times in events if not isinstance(event, PureChoice)]
    return sum(each * times for each, times in chosen), rest


def _of_run(
    events: list[tuple[Event, int]], adjacency: Adjacency, delta: float, interval: float
) -> float:
    """Epsilon of events none of which holds users out."""
    events, *others = by_part(events)
    if others:
        return max(_of_run(part, adjacency, delta, interval) for part in (events, *others))
    choices, events = _choices(events)
    return choices + _of_the_rest(events, adjacency, delta, interval)


def _of_the_rest(
    events: list[tuple[Event, int]], adjacency: Adjacency, delta: float, interval: float
) -> float:
    """The epsilon of all that a user of one part is exposed to, except choices."""
    if any(isinstance(event, GroupGaussian) for event, _ in events):
        return group_privacy.epsilon_with_groups(
            events, adjacency=adjacency, delta=delta, interval=interval
        )
    result = composed_epsilon(events, adjacency=adjacency, delta=delta, interval=interval)
    return min(result, _added_up(events, delta))


def _added_up(events: list[tuple[Event, int]], delta: float) -> float:
    """ε of randomized labels by basic composition; infinite with anything else, or a larger δ.

    Exact for one promise, where a discretized loss may come out a step above what was promised.
    """
    labels = [(event, times) for event, times in events if isinstance(event, RandomizedLabels)]
    spent = sum(event.delta * times for event, times in labels)
    if not labels or len(labels) < len(events) or not spent <= delta:
        return math.inf
    return sum(event.epsilon * times for event, times in labels)


def calibrate(
    cost: Callable[[float, float], float],
    target: float,
    *,
    low: float = 0.05,
    high: float | None = None,
) -> float:
    """The smallest ``x`` in [low, high] with ``cost(x, interval) <= target``; cost must fall in x.

    Finds the neighbourhood at a coarse discretization and finishes at the fine one, so the promise
    rests on the fine one: the result costs at most ``target``, and at least 0.9999 of it unless
    ``low`` already meets it. Without ``high``, one that is enough is searched for. Raises
    ValueError when ``high``, or the search's largest, is not enough.
    """
    if not (math.isfinite(target) and target > 0):
        raise ValueError(f"epsilon must be a positive finite number, got {target}")
    if high is None:
        enough = itertools.takewhile(lambda x: cost(x, _COARSE) <= target, _LADDER)
        high = min(enough, default=_LADDER[0])

    @functools.cache  # the ends of a bracket are asked about again
    def gap(log_x: float, interval: float) -> float:
        value = cost(math.exp(log_x), interval)
        return math.log(max(value, 1e-12) / target)

    bottom, top = math.log(low), math.log(high)
    # A small target may drown in the coarse discretization's own error.
    coarse = _COARSE if gap(top, _COARSE) <= 0 else INTERVAL
    if gap(top, coarse) > 0:
        raise ValueError(
            f"epsilon = {target:g} is out of reach at {high:g}: "
            f"with that much noise the plan still costs {cost(high, INTERVAL):.4g}"
        )
    # From above: a cost far over the target is also the slowest to compute.
    below, above = top, top
    while below > bottom and gap(below, coarse) <= 0:
        below, above = max(bottom, below - math.log(2)), below
    if gap(below, coarse) <= 0:
        return low
    x = _solve(lambda log_x: gap(log_x, coarse), below, above, start=(below + above) / 2)
    return math.exp(_solve(lambda log_x: gap(log_x, INTERVAL), bottom, top, start=x))


def _solve(gap: Callable[[float], float], low: float, high: float, *, start: float) -> float:
    """The root of ``gap``, which falls from above 0 at ``low`` to 0 or less at ``high``: a point
    where it is in [-1e-4, 0].

    Secant steps that aim just inside, and halves the bracket when one leaves it. At a cliff, where
    no such point exists, the end of the bracket that meets the target.
    """
    x, value, slope = start, gap(start), -1.5
    for _ in range(60):
        if -1e-4 <= value <= 0:
            return x
        low, high = (x, high) if value > 0 else (low, x)
        if high - low < 1e-9:
            break
        step = x - (value + 0.5e-4) / slope
        if not low < step < high:
            step = (low + high) / 2
        stepped = gap(step)
        slope = min(-0.2, (stepped - value) / (step - x))
        x, value = step, stepped
    return high


def calibrate_noise(
    target: float,
    charges: Callable[[float], Mapping[Event, int]],
    *,
    delta: float,
    adjacency: Adjacency,
    high: float | None = None,
) -> float:
    """The smallest noise multiplier with which everything that a plan charges costs ``target``.

    ``charges`` maps a noise multiplier to what a plan with it releases: how often each event. Parts
    that do not depend on it are charged as they are. Met from below: the composed epsilon is at
    most ``target`` and within a few parts in 10,000. ``high``, if given, is known to be enough.

    Raises:
        ValueError: a parameter is out of range, or no amount of noise meets the target.
        Unsupported: an event has no guarantee under ``adjacency``.
    """
    _check_delta(delta)

    def cost(sigma: float, interval: float) -> float:
        return epsilon(charges(sigma).items(), adjacency=adjacency, delta=delta, interval=interval)

    return calibrate(cost, target, high=high)


@functools.lru_cache(maxsize=256)
def noise_multiplier_for(
    target: float,
    *,
    delta: float,
    probability: float,
    rounds: int,
    adjacency: Adjacency,
    hold_out: HoldOut | None = None,
) -> float:
    """``calibrate_noise`` for ``rounds`` Poisson-Gaussian rounds with this ``probability``.

    ``hold_out`` is the secret hold-out, if there is one.
    """
    _check_delta(delta)
    if not (math.isfinite(target) and target > 0):
        raise ValueError(f"epsilon must be a positive finite number, got {target}")
    if rounds < 1:
        raise ValueError(f"there must be at least one round, got {rounds}")
    # One Gaussian without sampling bounds the search from above, up to the swap's factor of two.
    high = 2.0 * adjacency.vectors_changed * math.sqrt(rounds * 2 * math.log(2 / delta))
    return calibrate_noise(
        target,
        lambda sigma: {PoissonGaussian(probability, sigma): rounds, **charges_of(hold_out)},
        delta=delta,
        adjacency=adjacency,
        high=max(1.0, high * (1 + 1 / target)),
    )


def joint_noise_multiplier(
    noise_multiplier: float, bit_noise: float, *, bound: float = 0.5
) -> float:
    """The noise multiplier of a Gaussian sum and a noisy count released on the same cohort.

    Every sampled user adds a vector of length at most C to one sum, which gets noise of standard
    deviation ``noise_multiplier`` C, and a number of magnitude at most ``bound`` to another, which
    gets noise of standard deviation ``bit_noise``. Scaled by their noises the two are one Gaussian
    release of one bounded vector, so the round's event is ``PoissonGaussian(q, result)``:
    1/result^2 = 1/noise_multiplier^2 + bound^2/bit_noise^2 (Andrew et al. 2021, Theorem 1).

    A bit is sent as b - 1/2, so ``bound`` is 1/2 (a bit that is sent as 0 or 1 has 1). Under a
    swap both parts move by twice their bound, which the accountant supplies as for the sum alone.
    """
    for value in (noise_multiplier, bit_noise, bound):
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"noise and bound must be positive finite numbers, got {value}")
    return 1.0 / math.hypot(1.0 / noise_multiplier, bound / bit_noise)


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be in (0, 1), got {delta}")


def delta_for(
    target: float,
    charges: Mapping[Event, int],
    *,
    adjacency: Adjacency,
    interval: float = INTERVAL,
) -> float:
    """The smallest delta at which ``charges`` cost at most epsilon = ``target``."""
    total = composition(charges.items(), adjacency=adjacency, interval=interval)
    return 0.0 if total is None else total.delta(target)
