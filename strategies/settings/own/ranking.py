"""Settings of rankings."""

from dataclasses import dataclass

from murmuration.preference.choices import PAIRINGS
from murmuration.strategies.settings.declaration import AT_LEAST_ONE, setting


@dataclass(frozen=True)
class RankingSettings:
    """Settings of boards."""

    items: str = setting(
        "", "The public list of items: a file with one a line, or a .json file with an array."
    )
    max_votes: int = setting(
        0, "Most votes of a voter that count; which ones is chance. [default: 10]", **AT_LEAST_ONE
    )
    categories: str = setting(
        "",
        "The public list of categories, written like --items: a board for each. The prompt of a "
        "vote says its category. [default: one board]",
    )
    pairing: str = setting(
        PAIRINGS[0],
        "Who chose what is compared. public: whoever runs the poll, each pair alike. voters: they, "
        "or nobody knows; counts of pairs are released, too. [default: public]",
        choices=PAIRINGS,
    )
