"""Learn what a crowd prefers without learning what anyone in it prefers.

``train`` makes a run, and ``tune`` chooses its settings privately; before, ``data`` looks at
judgements and ``plan`` says what a run will cost; ``privatize`` randomizes labels; ``compare``
runs strategies side by side. ``Run`` is a finished run and ``RewardModel`` what it has learnt;
``score``, ``respond``, ``align`` and ``winrate`` use that. What cannot be used is an
``InputError``, in one line. Within ``online()`` a hub may be asked for what a folder names.
Everything else is internal: it may change from one version to the next.

    import murmuration as mm
    mm.plan(epsilon=3, delta=1e-5, rounds=200, cohort=500, users=4800)["noise_multiplier"]
    run = mm.train("judgements.jsonl", epsilon=3, out="r")
    run.model.score("Spend or save?", "Put it aside for now.")
"""

from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murmuration.alignment.reinforce import Steps
    from murmuration.alignment.rewards import Guards
    from murmuration.alignment.supervised import Supervised
    from murmuration.api.aligning import align
    from murmuration.api.comparing import compare
    from murmuration.api.judging import winrate
    from murmuration.api.looking import data
    from murmuration.api.privatizing import PrivatizedLabels, privatize
    from murmuration.api.responding import Responses, respond
    from murmuration.api.run import Run
    from murmuration.api.scoring import score
    from murmuration.api.training import train
    from murmuration.planning.compare import StrategyComparison
    from murmuration.planning.look import DataSummary
    from murmuration.planning.plan import plan
    from murmuration.planning.tune import tune
    from murmuration.preference.data.errors import InputError
    from murmuration.preference.language.generation import Sampling
    from murmuration.preference.online import online
    from murmuration.preference.reward import RewardModel
    from murmuration.strategies.settings.run import Settings
    from murmuration.strategies.spec import Strategy

    __version__: str

__all__ = [
    "DataSummary",
    "Guards",
    "InputError",
    "PrivatizedLabels",
    "Responses",
    "RewardModel",
    "Run",
    "Sampling",
    "Settings",
    "Steps",
    "Strategy",
    "StrategyComparison",
    "Supervised",
    "__version__",
    "align",
    "compare",
    "data",
    "online",
    "plan",
    "privatize",
    "respond",
    "score",
    "train",
    "tune",
    "winrate",
]

# Installed, the rooms (client, server, strategies, …) lie in this folder. In a checkout, and in an
# app bundle that Flower makes of one, they lie beside it.
_HERE = Path(__file__).resolve().parent
if not (_HERE / "privacy").is_dir():
    __path__.append(str(_HERE.parent))

from murmuration.privacy.plugins import brought  # noqa: E402

__all__ = sorted([*__all__, *brought("murmuration.api")])

#: Where names are that are imported when they are asked for: some need libraries that take seconds.
_PLACES = {
    "DataSummary": "murmuration.planning.look",
    "Guards": "murmuration.alignment.rewards",
    "InputError": "murmuration.preference.data.errors",
    "PrivatizedLabels": "murmuration.api.privatizing",
    "Responses": "murmuration.api.responding",
    "RewardModel": "murmuration.preference.reward",
    "Run": "murmuration.api.run",
    "Sampling": "murmuration.preference.language.generation",
    "Settings": "murmuration.strategies.settings.run",
    "Steps": "murmuration.alignment.reinforce",
    "Strategy": "murmuration.strategies.spec",
    "StrategyComparison": "murmuration.planning.compare",
    "Supervised": "murmuration.alignment.supervised",
    "align": "murmuration.api.aligning",
    "compare": "murmuration.api.comparing",
    "data": "murmuration.api.looking",
    "online": "murmuration.preference.online",
    "plan": "murmuration.planning.plan",
    "privatize": "murmuration.api.privatizing",
    "respond": "murmuration.api.responding",
    "score": "murmuration.api.scoring",
    "train": "murmuration.api.training",
    "tune": "murmuration.planning.tune",
    "winrate": "murmuration.api.judging",
}


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
    return sorted({*globals(), *__all__})
