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
        group_size=config.group_size or uls.DEFAULT_GROUP_SIZE,
        retain=config.retain,
        normalized=config.normalized,
        local=local,
    )
