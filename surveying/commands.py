"""``murmuration survey``: private statistics of users' judgements."""

from typing import Any

from murmuration.cli.about_data import UserColumn
from murmuration.cli.whole_crowd import AsJson, UsersPerNode, Where, add_settings, print_asked
from murmuration.sims.runtimes.runtime import Runtime


def survey(
    *,
    user_column: UserColumn = None,
    runtime: Where = Runtime.LOCAL,
    users_per_node: UsersPerNode = None,
    as_json: AsJson = False,
    **given: Any,
) -> None:
    """Release private statistics of users' judgements.

    Users, judgements per user, ties, lengths, languages, topics by --topics, and how often the
    longest response is preferred. Each user takes part once. One noisy sum is released, and charged
    to the ledger; `murmuration plan --survey` takes what it needs from it. Without --data the
    embedded population is surveyed.
    """
    from murmuration.surveying import api

    given |= {"user_column": user_column, "runtime": runtime, "users_per_node": users_per_node}
    print_asked(api.survey, as_json, given)


add_settings(survey, "survey", "max_characters", "max_judgements")
