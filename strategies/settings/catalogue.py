"""Which settings each strategy has that is here."""

from murmuration.strategies.settings.adaptive import AdaptiveSettings
from murmuration.strategies.settings.aup import AupSettings
from murmuration.strategies.settings.dp_fedavg import FedAvgSettings
from murmuration.strategies.settings.els import ElsSettings
from murmuration.strategies.settings.exponential import ExponentialSettings
from murmuration.strategies.settings.local_label import LocalLabelSettings
from murmuration.strategies.settings.objective_perturbation import ObjectiveSettings
from murmuration.strategies.settings.ranking import RankingSettings
from murmuration.strategies.settings.shared import Retained, Solved
from murmuration.strategies.settings.uls import UlsSettings

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
    "local-label": LocalLabelSettings,
    "exponential": ExponentialSettings,
    "nonprivate": Retained,
}
