"""Learn what a crowd prefers without learning what anyone in it prefers.

``train`` and ``plan`` do what the commands of these names do, ``compare`` runs strategies side by
side, ``Run`` is a finished run and ``RewardModel`` what it has learnt; within ``online()`` a hub
may be asked for what a folder names. Everything else is internal: it may change from one version to
the next.

    from murmuration import plan, train
    plan(epsilon=3, delta=1e-5, rounds=200, cohort=500, users=4800)["noise_multiplier"]
    run = train(data="judgements.jsonl", epsilon=3, out="r")
    run.model.score("Spend or save?", "Put it aside for now.")
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from murmuration.preference.online import online
    from murmuration.preference.reward import RewardModel
    from murmuration.public import Run, compare, plan, train
    from murmuration.strategies.settings import Settings
    from murmuration.strategies.spec import Strategy

__all__ = ["RewardModel", "Run", "Settings", "Strategy", "compare", "online", "plan", "train"]

# Installed, the rooms (client, server, strategies, …) lie in this folder. In a checkout, and in an
# app bundle that Flower makes of one, they lie beside it.
_HERE = Path(__file__).resolve().parent
if not (_HERE / "privacy").is_dir():
    __path__.append(str(_HERE.parent))

#: Where names are that are imported when they are asked for: some need libraries that take seconds.
_PLACES = {
    "RewardModel": "murmuration.preference.reward",
    "Run": "murmuration.public",
    "Settings": "murmuration.strategies.settings",
    "Strategy": "murmuration.strategies.spec",
    "compare": "murmuration.public",
    "online": "murmuration.preference.online",
    "plan": "murmuration.public",
    "train": "murmuration.public",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
