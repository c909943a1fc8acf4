"""Learn preferences of many users with user-level differential privacy.

``train`` makes a run; before, ``data`` looks at judgements and ``plan`` computes the cost of a run;
``privatize`` randomizes labels; ``compare`` runs strategies side by side. All take settings as
keywords, or as a ``TrainConfig``. ``Run`` is a finished run
and ``RewardModel`` its model, which ``score`` uses. Installed packages add more names; ``__all__``
has all. Bad input raises an ``InputError``, of one line. Within ``online()`` models that a folder
names may be fetched from a hub. Everything else is internal: it may change from one version to the
next.

    import murmuration as mm
    mm.plan(epsilon=3, delta=1e-5, rounds=200, cohort=500, users=4800)["noise_multiplier"]
    run = mm.train("judgements.jsonl", epsilon=3, out="r")
    run.model.score("Spend or save?", "Put it aside for now.")
"""

from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Installed, the rooms (client, server, strategies, …) lie in this folder. In a checkout, and in an
# app bundle that Flower makes of one, they lie beside it.
_HERE = Path(__file__).resolve().parent
if not (_HERE / "privacy").is_dir():
    __path__.append(str(_HERE.parent))

from murmuration.privacy.plugins import brought  # noqa: E402

#: Where names are that are imported when they are asked for: some need libraries that take seconds.
#: Rooms bring others.
_PLACES = {
    "DataSummary": "murmuration.planning.look",
    "InputError": "murmuration.preference.data.errors",
    "PrivatizedLabels": "murmuration.api.privatizing",
    "RewardModel": "murmuration.preference.reward",
    "Run": "murmuration.api.run",
    "TrainConfig": "murmuration.api.config",
    "compare": "murmuration.api.comparing",
    "data": "murmuration.api.looking",
    "online": "murmuration.preference.online",
    "plan": "murmuration.planning.plan",
    "privatize": "murmuration.api.privatizing",
    "score": "murmuration.api.scoring",
    "train": "murmuration.api.training",
}
_NAMES = sorted({"__version__", *_PLACES, *brought("murmuration.api")})

if TYPE_CHECKING:  # what editors complete, where all rooms are there
    from murmuration.alignment.api.aligning import align as align
    from murmuration.alignment.api.judging import winrate as winrate
    from murmuration.alignment.api.responding import Responses as Responses
    from murmuration.alignment.api.responding import respond as respond
    from murmuration.alignment.api.trl import reward_function as reward_function
    from murmuration.alignment.reinforce import Steps as Steps
    from murmuration.alignment.rewards import Guards as Guards
    from murmuration.alignment.supervised import Supervised as Supervised
    from murmuration.api.comparing import compare as compare
    from murmuration.api.config import TrainConfig as TrainConfig
    from murmuration.api.looking import data as data
    from murmuration.api.privatizing import PrivatizedLabels as PrivatizedLabels
    from murmuration.api.privatizing import privatize as privatize
    from murmuration.api.run import Run as Run
    from murmuration.api.scoring import score as score
    from murmuration.api.training import train as train
    from murmuration.planning.look import DataSummary as DataSummary
    from murmuration.planning.plan import plan as plan
    from murmuration.preference.data.errors import InputError as InputError
    from murmuration.preference.language.generation import Sampling as Sampling
    from murmuration.preference.online import online as online
    from murmuration.preference.reward import RewardModel as RewardModel
    from murmuration.ranking.api import Ranking as Ranking
    from murmuration.ranking.api import rank as rank
    from murmuration.surveying.api import Survey as Survey
    from murmuration.surveying.api import survey as survey
    from murmuration.tuning.tune import tune as tune

    __version__: str
else:
    __all__ = _NAMES


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from murmuration.server.versions import version

        return version()
    if name in _PLACES:
        value = getattr(import_module(_PLACES[name]), name)
    elif place := brought("murmuration.api").get(name):
        value = place.load()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if isfunction(value):
        from murmuration.strategies.settings.from_python import for_python

        value = for_python(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
