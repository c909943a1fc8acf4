"""``murmuration plan`` where single judgements are sampled: ELS and its group-privacy baseline."""

from dataclasses import dataclass

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.mechanisms.clipping import ExampleClip
from murmuration.privacy.mechanisms.hold_out import HoldOut
from murmuration.strategies import els
from murmuration.strategies import els as group
from murmuration.strategies.els import ElsPlan, GroupPlan

STRATEGIES = ("els", "group")


@dataclass(frozen=True)
class Asked:
    """What is known of a plan; None for what was not given.

    ``hold_out`` is how users are held out, if they are.
    """

    users: int | None
    group_size: int | None
    sampling_probability: float | None
    cohort: int | None
    rounds: int | None
    delta: float | None
    epsilon: float | None
    noise_multiplier: float | None
    hold_out: HoldOut | None = None


def solve(strategy: str, asked: Asked, adjacency: Adjacency) -> dict[str, float]:
    """Epsilon from the noise multiplier, or the noise multiplier from epsilon.

    The sampling probability may be left out if ``cohort`` is given. ``batch`` is the constant that
    sums are divided by.

    Raises:
        InputError: something is missing, given twice or out of range, or group privacy diverges.
        Unsupported: there is no guarantee under ``adjacency``.
    """
    for name in ("users", "group_size", "rounds", "delta"):
        if not (value := getattr(asked, name)) or value < 0:
            option = name.replace("_", "-")
            raise InputError(f"--strategy {strategy} needs --{option}, a positive number")
    if (asked.epsilon is None) == (asked.noise_multiplier is None):
        raise InputError("give one of --epsilon and --noise-multiplier: the other is solved for")
    if (asked.sampling_probability is None) == (asked.cohort is None):
        raise InputError(
            "give one of --sampling-probability, of each kept judgement, and --cohort, the users "
            "of a round of uls whose work it is to equal"
        )
    assert asked.users and asked.group_size  # checked above
    probability = asked.sampling_probability
    if probability is None:
        probability = els.same_compute(asked.cohort or 0, asked.users, asked.group_size)
    fields = {
        "users": asked.users,
        "group_size": asked.group_size,
        "probability": probability,
        "rounds": asked.rounds,
        "delta": asked.delta,
        "adjacency": adjacency,
        "clip": ExampleClip(1.0),
        "hold_out": asked.hold_out,
    }
    kind = ElsPlan if strategy == "els" else GroupPlan
    if asked.noise_multiplier is None:
        plan = kind.for_epsilon(asked.epsilon or 0.0, **fields)
    else:
        plan = kind(noise_multiplier=asked.noise_multiplier, **fields)
        if isinstance(plan, GroupPlan):
            group.check(plan)
    given = {name: value for name, value in vars(asked).items() if value is not None}
    given.pop("hold_out", None)
    return {
        **given,
        "epsilon": plan.epsilon(),
        "noise_multiplier": plan.noise_multiplier,
        "sampling_probability": probability,
        "batch": plan.batch,
    }
