"""What a Flower app of your own may use, each imported when it is asked for.

``train`` is a whole private run over the nodes of a ServerApp and ``client_app`` what answers it;
``run_local`` runs both in this process. ``PldAccountant`` counts what Flower's own private
strategies spend.

    from flwr.serverapp import ServerApp
    from murmuration.flower import train

    app = ServerApp()

    @app.main()
    def main(grid, context):
        run = train(grid, context)
        print(run.promise)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what editors complete
    from murmuration.api.over_grid import train as train
    from murmuration.api.pld_accountant import PldAccountant as PldAccountant
    from murmuration.client.app import app as client_app  # noqa: F401
    from murmuration.sims.runtimes.local import run_local as run_local

_PLACES = {
    "PldAccountant": ("murmuration.api.pld_accountant", "PldAccountant"),
    "client_app": ("murmuration.client.app", "app"),
    "run_local": ("murmuration.sims.runtimes.local", "run_local"),
    "train": ("murmuration.api.over_grid", "train"),
}
__all__ = sorted(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, its = _PLACES[name]
    value = globals()[name] = getattr(import_module(module), its)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
