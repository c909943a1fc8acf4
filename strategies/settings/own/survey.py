"""Settings of a survey."""

from dataclasses import dataclass
from functools import partial

from murmuration.preference.data.public_names import whole_path
from murmuration.strategies.settings.declaration import setting


@dataclass(frozen=True)
class SurveySettings:
    """Settings of a survey."""

    topics: str = setting(
        "",
        "The public list of topics: a file with one a line (name: word, word), or a .json file "
        "with an array. [default: topics are not asked about]",
        pinned=partial(whole_path, "--topics", "topic"),
    )
