"""Which settings each strategy has that is here."""

from murmuration.strategies.settings.own.adaptive import AdaptiveSettings
from murmuration.strategies.settings.own.aup import AupSettings
from murmuration.strategies.settings.own.dp_fedavg import FedAvgSettings
from murmuration.strategies.settings.own.els import ElsSettings
from murmuration.strategies.settings.own.exponential import ExponentialSettings
from murmuration.strategies.settings.own.local_label import LocalLabelSettings
from murmuration.strategies.settings.own.objective_perturbation import ObjectiveSettings
from murmuration.strategies.settings.own.ranking import BoardSettings, RankingSettings, VotedItems
from murmuration.strategies.settings.own.shared import Retained, Solved
from murmuration.strategies.settings.own.survey import SurveySettings
from murmuration.strategies.settings.own.uls import UlsSettings

#: The settings of each strategy that is here, by its name, in the order in which they are offered.
OF_STRATEGIES: dict[str, type] = {
    "uls": UlsSettings,
    "dp-fedavg": FedAvgSettings,
    "els": ElsSettings,
    "group": ElsSettings,
    "adaptive": AdaptiveSettings,
    "aup": AupSettings,
    "label-moment": Solved,
    "objective-perturbation": ObjectiveSettings,
    "ranking": RankingSettings,
    "survey": SurveySettings,
    "laplace-ranking": BoardSettings,
    "best-item": VotedItems,
    "local-label": LocalLabelSettings,
    "exponential": ExponentialSettings,
    "nonprivate": Retained,
}
