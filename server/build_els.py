"""ELS and its group-privacy baseline, from settings.

The group size of ELS, unless it is given, is the median number of judgements (Charles et al. 2024,
App. H) of those users who are trained on. Their numbers of judgements are private wherever ELS has
a guarantee, so the median is released with a twentieth of epsilon, and the rounds get the rest. It
is released once: a resumed run goes on with the value that is on file.
"""

from privacy.adjacency import Adjacency
from privacy.example_clipping import ExampleClip
from privacy.ledger import Ledger
from privacy.median import release_median
from server.config import RunConfig
from server.setting import Built, Setting, promise
from strategies import counts, els, group, support, uls
from strategies.els import Els, ElsPlan
from strategies.group import Group, GroupPlan
from strategies.secure_rounds import check_nodes

#: Of epsilon, for choosing the group size. With 1,000 users at ε = 1 that lands within about 60
#: ranks of the median; the noise of the rounds grows by 5 %.
MEDIAN_SHARE = 0.05


def build_els(setting: Setting, ledger: Ledger) -> Built:
    """The plan, the strategy and the report's figures."""
    config = setting.config
    support.check("els", Adjacency(config.adjacency))  # before anything is spent
    group_size, chosen_at = config.group_size, 0.0
    if not group_size:
        chosen_at = MEDIAN_SHARE * config.epsilon
        group_size = setting.once("group-size", lambda: _median(setting, ledger, chosen_at))
    plan = ElsPlan.for_epsilon(config.epsilon, chosen_at=chosen_at, **_fields(setting, group_size))
    optimizer = setting.optimizer("sgd", plan.noise, _ceiling(plan))
    strategy = Els(plan, ledger, **setting.arguments(optimizer))
    return _built(config, plan, strategy, setting.dimension)


def build_group(setting: Setting, ledger: Ledger) -> Built:
    """The plan, the strategy and the report's figures."""
    config = setting.config
    fields = _fields(setting, config.group_size or group.DEFAULT_GROUP_SIZE)
    plan = GroupPlan.for_epsilon(config.epsilon, **fields)
    optimizer = setting.optimizer("sgd", plan.noise, _ceiling(plan))
    strategy = Group(plan, ledger, **setting.arguments(optimizer))
    return _built(config, plan, strategy, setting.dimension)


def _fields(setting: Setting, group_size: int) -> dict[str, object]:
    config, users = setting.config, setting.users
    uls.check_size(users, config.cohort, config.rounds, group_size)
    norm = config.clip or els.DEFAULT_CLIP
    by_cohort = els.same_compute(config.cohort, users, group_size)
    return {
        "users": users,
        "group_size": group_size,
        "probability": config.sampling_probability or by_cohort,
        "rounds": config.rounds,
        "delta": config.delta,
        "adjacency": Adjacency(config.adjacency),
        "clip": ExampleClip(norm),
        "discrete": setting.noise.on(setting.dimension),
        "normalized": config.normalized,
        "hold_out": setting.hold_out,
    }


def _median(setting: Setting, ledger: Ledger, epsilon: float) -> int:
    if setting.config.secure_aggregation:  # before anything is asked or spent
        taking_part = setting.participants
        check_nodes(taking_part.registry, 1.0 - taking_part.share)
    users_J = counts.ask(
        setting.grid,
        setting.participants,
        features=setting.features,
        log=setting.log,
        timeout=setting.config.timeout,
        masked=setting.config.secure_aggregation,
    )
    return release_median(
        users_J, epsilon, adjacency=ledger.adjacency, ledger=ledger, source=setting.source
    )


def _ceiling(plan: ElsPlan) -> float:
    return uls.RATE_CEILING / plan.clip.norm * plan.divisor / plan.batch


def _built(config: RunConfig, plan: ElsPlan, strategy: Els, dimension: int) -> Built:
    how = (
        "as a mixture of Gaussians, whose means are the numbers of their judgements in the sum"
        if strategy.name == "els"
        else "for one judgement, and converted to users as a black box: group privacy, a baseline"
    )
    chosen = (
        f" {plan.group_size:,} is near the median number of judgements; choosing it cost a pure "
        f"epsilon of {plan.chosen_at:.3g}, which is part of the total."
        if plan.chosen_at
        else ""
    )
    return Built(
        strategy=strategy,
        charges=plan.charges,
        noise_multiplier=plan.noise_multiplier,
        clip_norm=plan.clip.norm,
        group_size=plan.group_size,
        noise=plan.noise,
        guarantee=promise(config),
        # In gradients of a user under ULS, each over so many judgements.
        gradients=plan.rounds * plan.batch / uls.DEFAULT_GROUP_SIZE,
        bytes_per_user=plan.rounds * (4 + 8) * dimension,  # everybody is asked every round
        account=(
            f"Before training every user kept at most {plan.group_size:,} judgements.{chosen} In "
            f"each round each of these took part with probability {plan.probability:.3g}, by a "
            "coin that its node tossed; nodes are trusted with these coins. Its gradient was "
            f"clipped to length {plan.clip.norm:g}. Gaussian noise of {plan.noise_multiplier:.3g} "
            f"times that length per coordinate was added to the sum, which was divided by "
            f"{plan.batch:,.6g}, however many had taken part. What a whole user could change was "
            f"accounted {how}."
        ),
    )
