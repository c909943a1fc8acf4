"""Inputs of a plan from a private survey; post-processing, without privacy cost."""

import math
import os

from murmuration.api.run import Run
from murmuration.planning.advice import users_to_train_on
from murmuration.preference.data.errors import InputError
from murmuration.privacy.figures import interval, points_of_error, share_text
from murmuration.strategies.settings.plan_options import KnownCrowd
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.sums import DEFAULT_GROUP_SIZE
from murmuration.surveying.page import users_text
from murmuration.surveying.questionnaire import JUDGEMENTS
from murmuration.surveying.release import SurveyRelease


def surveyed(folder: str | os.PathLike[str], heldout: float | None) -> KnownCrowd:
    """The inputs of a plan from the survey in a folder: the number of users with judgements, less
    the share held out, rounded.

    Args:
        folder: of a run of ``murmuration survey``.
        heldout: the share of users to be held out; None: as a run does by default.

    Raises:
        InputError: there is no survey, or it learnt nothing.
    """
    run = Run.load(folder)
    release = SurveyRelease.of_result(run.result, run.path)
    if release.learnt_nothing:
        raise InputError(f"--survey {folder}: nothing was learnt, so there is nothing to plan from")
    share = Settings.heldout if heldout is None else heldout
    users = users_to_train_on(release.users, share)
    least, most = release.quantile(0.5)
    median = round(math.sqrt(least * (most or least)))
    return KnownCrowd(
        users,
        median,
        f"From the survey: {users_text(release)} users with judgements; less "
        f"{share_text(share)} held out, and rounded, {users:,} to train on. The median user has "
        f"{least} to {most or 'more'} judgements, about {median}; a round with --group-size "
        f"{DEFAULT_GROUP_SIZE}, the default of uls, can read all of {_whole(release)} of the "
        f"users. The survey's ε = {release.epsilon:.3g} comes on top for whoever is in both: "
        "murmuration ledger --all-runs adds up.",
    )


def _whole(release: SurveyRelease) -> str:
    """The share of users with no more judgements than a round uses by default."""
    bins = sum(top <= DEFAULT_GROUP_SIZE for top in JUDGEMENTS[1:])
    share = sum(each.count for each in release.per_user[:bins]) / release.users
    error = interval(release.noise * math.sqrt(bins + share**2)) / release.users
    return f"{share_text(min(1.0, max(0.0, share)))} ± {points_of_error(error)}"
