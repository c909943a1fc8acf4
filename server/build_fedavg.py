"""DP-FedAvg, from settings."""

from preference.gradients import LocalSteps
from privacy.adjacency import Adjacency
from privacy.clipping import UserClip
from privacy.ledger import Ledger
from server.setting import Built, Setting, cohort_bytes, promise
from strategies import uls
from strategies.dp_fedavg import DEFAULT_LOCAL, DpFedAvg, FedAvgPlan, default_clip


def build_fedavg(setting: Setting, ledger: Ledger) -> Built:
    """The plan, the strategy and the report's figures."""
    config = setting.config
    local = LocalSteps(
        config.local_steps or DEFAULT_LOCAL.steps, config.local_rate or DEFAULT_LOCAL.rate
    )
    plan = FedAvgPlan.for_epsilon(
        config.epsilon,
        users=setting.users,
        cohort=config.cohort,
        rounds=config.rounds,
        delta=config.delta,
        adjacency=Adjacency(config.adjacency),
        clip=UserClip(config.clip or default_clip(local)),
        discrete=setting.noise.on(setting.dimension),
        group_size=config.group_size or uls.DEFAULT_GROUP_SIZE,
        retain=config.retain,
        normalized=config.normalized,
        local=local,
        hold_out=setting.hold_out,
    )
    ceiling = uls.RATE_CEILING / plan.clip.norm * plan.divisor / plan.cohort
    optimizer = setting.optimizer("sgd", plan.noise, ceiling)
    return Built(
        strategy=DpFedAvg(plan, ledger, **setting.arguments(optimizer)),
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip.norm,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=promise(config),
        gradients=plan.rounds * plan.cohort * local.steps,
        bytes_per_user=cohort_bytes(setting),
        account=(
            f"In each round every user took part with probability {plan.cohort / plan.users:.3g}, "
            f"by a coin of their own. Whoever did took {local.steps} gradient steps of length "
            f"{local.rate:g} on at most {plan.group_size:,} of their judgements, starting from the "
            "model, and contributed one vector: how far these had led, clipped to length "
            f"{plan.clip.norm:g}. Gaussian noise of {plan.noise_multiplier:.3g} times that length "
            f"per coordinate was added to the sum, which was divided by {plan.cohort:,}, however "
            "many had taken part."
        ),
    )
