"""``murmuration plan`` where the model is solved for: everybody takes part, once or twice.

Without sampling, cohort and users do not enter: epsilon, the noise multiplier and delta hang
together, and two of them give the third.
"""

from murmuration.preference.data.judgements import InputError
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian
from murmuration.privacy.adjacency import Adjacency
from murmuration.sims.planning.examples import Asked
from murmuration.strategies.settings import FEW_ROUNDS

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
        epsilon = accountant.epsilon(
            [(PoissonGaussian(1.0, noise), rounds)], adjacency=adjacency, delta=delta
        )
    elif missing[0] == "delta":
        delta = accountant.delta_for(
            epsilon, event=PoissonGaussian(1.0, noise), rounds=rounds, adjacency=adjacency
        )
    else:
        noise = accountant.noise_multiplier_for(
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
