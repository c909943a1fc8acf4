"""``murmuration plan`` where the model is solved for: everybody takes part, once or twice.

Without sampling, cohort and users do not enter: epsilon, the noise multiplier and delta hang
together, and two of them give the third.
"""

from preference.judgements import InputError
from privacy import accounting
from privacy.adjacency import Adjacency
from privacy.events import PoissonGaussian
from server.choices import FEW_ROUNDS
from sims.plan_examples import Asked

STRATEGIES = ("label-moment", "objective-perturbation")


def solve(strategy: str, asked: Asked, adjacency: Adjacency) -> dict[str, float]:
    """All numbers of the plan; the noise multiplier is that over the clip norm.

    Raises:
        InputError: not exactly one of epsilon, noise multiplier and delta is left out, or a number
            that cannot be.
    """
    rounds = asked.rounds or FEW_ROUNDS[strategy][0]
    if rounds not in FEW_ROUNDS[strategy]:
        allowed = " or ".join(map(str, FEW_ROUNDS[strategy]))
        raise InputError(f"--strategy {strategy} takes --rounds {allowed}, not {rounds}")
    if asked.cohort is not None:
        raise InputError(f"--cohort has no meaning for --strategy {strategy}: everybody takes part")
    if not asked.users or asked.users < 1:
        raise InputError(f"--strategy {strategy} needs --users, a positive number")
    three = {
        "epsilon": asked.epsilon,
        "noise_multiplier": asked.noise_multiplier,
        "delta": asked.delta,
    }
    missing = [name for name, value in three.items() if value is None]
    if len(missing) != 1:
        raise InputError(
            "leave out exactly one of --epsilon, --noise-multiplier and --delta, to solve for it"
        )
    for name, value in three.items():
        if value is not None and not value > 0:
            raise InputError(f"--{name.replace('_', '-')} must be positive; got {value}")
    epsilon, noise, delta = asked.epsilon or 0.0, asked.noise_multiplier or 0.0, asked.delta or 0.0
    if missing[0] == "epsilon":
        epsilon = accounting.epsilon(
            [(PoissonGaussian(1.0, noise), rounds)], adjacency=adjacency, delta=delta
        )
    elif missing[0] == "delta":
        delta = accounting.delta_for(
            epsilon, event=PoissonGaussian(1.0, noise), rounds=rounds, adjacency=adjacency
        )
    else:
        noise = accounting.noise_multiplier_for(
            epsilon, delta=delta, probability=1.0, rounds=rounds, adjacency=adjacency
        )
    return {
        "epsilon": epsilon,
        "noise_multiplier": noise,
        "rounds": rounds,
        "cohort": asked.users,
        "users": asked.users,
        "delta": delta,
    }
