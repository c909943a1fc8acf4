"""Settings of leaderboards; light to import."""

from dataclasses import dataclass
from functools import partial

from murmuration.preference.data.public_names import whole_path
from murmuration.strategies.settings.declaration import AT_LEAST_ONE, OF_STRATEGY, POSITIVE, setting
from murmuration.strategies.settings.plan_options import PlanOptions

#: Who chose what votes compare (``ranking.release``).
PAIRINGS = ("public", "voters")
_PANEL = f"{OF_STRATEGY} ranking"


@dataclass(frozen=True)
class RankingSettings:
    """Settings of boards."""

    also_takes = ("group_size",)

    categories: str = setting(
        "",
        "The public list of categories, written like --items: a board for each. The prompt of a "
        "vote says its category. [default: one board]",
        pinned=partial(whole_path, "--categories", "category"),
    )
    pairing: str = setting(
        PAIRINGS[0],
        "Who chose what is compared. public: whoever runs the poll, each pair alike. voters: they, "
        "or nobody knows; counts of pairs are released, too. [default: public]",
        choices=PAIRINGS,
    )


@dataclass(frozen=True)
class BoardPlan:
    """Options of a plan of a board."""

    board_size: int = setting(
        0,
        "ranking: how many items a board has, to be told how many voters tell apart 10, 20 and 50 "
        "points.",
        panel=_PANEL,
        **AT_LEAST_ONE,
    )
    votes_each: float = setting(
        0.0,
        "ranking: votes of a voter that count, on average. [default: --group-size]",
        panel=_PANEL,
        **POSITIVE,
    )


PLAN_OPTIONS = PlanOptions(BoardPlan, strategy="ranking")
