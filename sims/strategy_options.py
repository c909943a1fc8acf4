"""Options of ``murmuration run`` that are about one strategy or a few."""

from typing import Annotated

import click

from server.choices import (
    ADAPTATIONS,
    CALIBRATIONS,
    ESTIMATORS,
    LABEL_WEIGHTS,
    LEVELS,
    SCHEDULES,
    SGD_STEPS,
    VARIANTS,
)
from sims.run_options import option

SamplingProbability = Annotated[
    float | None,
    option(
        "els, group: how likely each kept judgement is in a round. [default: as much work as "
        "uls with --cohort]"
    ),
]
Normalized = Annotated[
    bool | None,
    option("Divide by the clip norm, so that step sizes do not depend on it.", "--normalized"),
]
LocalSteps = Annotated[
    int | None, option("dp-fedavg: steps a user takes on their own. [default: 4]")
]
LocalRate = Annotated[float | None, option("dp-fedavg: length of these steps. [default: 1]")]
Variant = Annotated[
    str | None,
    option("aup: which form of it. [default: centred]", click_type=click.Choice(VARIANTS)),
]
Phases = Annotated[
    int | None, option("aup, published: phases on disjoint halves of the users. [default: 1]")
]
Schedule = Annotated[
    str | None,
    option(
        "aup, published: phases, steps and radii as given, or by the paper's theorem. "
        "[default: constant]",
        click_type=click.Choice(SCHEDULES),
    ),
]
Adaptation = Annotated[
    str | None,
    option(
        "aup, centred: how the radius adapts. [default: quantile]",
        click_type=click.Choice(ADAPTATIONS),
    ),
]
Quantile = Annotated[
    float | None, option("adaptive, aup: share of users within the radius. [default: 0.15]")
]
Ridge = Annotated[
    float | None,
    option(
        "label-moment, objective-perturbation, local-label: curvature added to the likelihood. "
        "[default: by the noise and public features]"
    ),
]
Ball = Annotated[
    float | None,
    option("As --ridge: the most that the weights' length may be."),
]
Estimator = Annotated[
    str | None,
    option(
        "local-label: how the model is fitted to randomized labels. [default: debiased]",
        click_type=click.Choice(ESTIMATORS),
    ),
]
Level = Annotated[
    str | None,
    option(
        "local-label: epsilon is for all labels of a user together, or for each item's. "
        "[default: user]",
        click_type=click.Choice(LEVELS),
    ),
]
LabelCap = Annotated[
    int | None, option("local-label: most labels a user ever tells. [default: all they have]")
]
LabelDelta = Annotated[
    float | None,
    option("local-label, user level: the part of delta that labels are told with."),
]
LabelWeights = Annotated[
    str | None,
    option(
        "local-label: judgements count by what their labels tell, or all the same. "
        "[default: information]",
        click_type=click.Choice(LABEL_WEIGHTS),
    ),
]
SgdSteps = Annotated[
    str | None,
    option(
        "local-label, sgd: falling steps and averages, or as published. [default: decaying]",
        click_type=click.Choice(SGD_STEPS),
    ),
]
SumZero = Annotated[
    bool | None, option("local-label: only weights that sum to zero.", "--sum-zero")
]
Calibration = Annotated[
    str | None,
    option(
        "objective-perturbation: the accountant's noise, or the paper's. [default: analytic]",
        click_type=click.Choice(CALIBRATIONS),
    ),
]
