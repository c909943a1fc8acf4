"""What the options of a run can be: names, in the order in which they are offered."""

STRATEGIES = (
    "uls",
    "dp-fedavg",
    "els",
    "group",
    "adaptive",
    "aup",
    "label-moment",
    "objective-perturbation",
    "local-label",
    "nonprivate",
)
VARIANTS = ("centred", "corrected", "published")
SCHEDULES = ("constant", "theorem-4")
ADAPTATIONS = ("quantile", "above-threshold")
CALIBRATIONS = ("analytic", "paper")
ESTIMATORS = ("debiased", "mle", "sgd", "square")
LEVELS = ("user", "item")
LABEL_WEIGHTS = ("information", "equal")
SGD_STEPS = ("decaying", "published")
#: Strategies that solve for the model, and how many rounds they may take; everybody takes part.
FEW_ROUNDS: dict[str, tuple[int, ...]] = {
    "label-moment": (1, 2),
    "objective-perturbation": (1,),
    "local-label": (1,),
}
