"""What a program does with Murmuration: plan a run, make one, read one, compare strategies.

Settings have the names of the options of ``murmuration run``, with underscores; what cannot be used
raises ``InputError``, in the one line that the command would print.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from murmuration.preference.data.rows import InputError
from murmuration.quiet import quiet_libraries

if TYPE_CHECKING:
    from murmuration.planning.compare import Cell
    from murmuration.preference.language.likelihood import SavedLikelihood
    from murmuration.preference.language.reward import SavedReward
    from murmuration.preference.reward import RewardModel
    from murmuration.privacy.accounting.ledger_lines import Charge
    from murmuration.privacy.promise import Promise
    from murmuration.strategies.config import RunConfig


@dataclass(frozen=True)
class Run:
    """A finished run.

    Attributes:
        path: its folder.
        result: what ``murmuration run --json`` prints.
    """

    path: Path
    result: Mapping[str, Any]

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Run:
        """The run in a folder.

        Raises:
            InputError: there is none, or it is not finished.
        """
        path = Path(folder).expanduser().absolute()
        try:
            result = json.loads((path / "result.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{folder}: no finished run: it has no result.json") from None
        except (OSError, ValueError) as error:
            raise InputError(f"{path / 'result.json'}: cannot be read: {error}") from None
        if not isinstance(result, dict):
            raise InputError(f"{path / 'result.json'}: not the result of a run")
        return cls(path, result)

    @cached_property
    def promise(self) -> Promise:
        """What may be claimed of the run and all that is made from it, its caveats included; as
        text, one line. What its base cost is in it.

        Raises:
            InputError: its files do not fit each other.
        """
        from murmuration.server.lineage import promise_of_run

        return promise_of_run(self.path)

    @property
    def ledger(self) -> list[Charge]:
        """What was charged for each release, in order; the ledger is verified at each call.

        Raises:
            LedgerError: it cannot be read, or is not what was written.
        """
        from murmuration.privacy.accounting.ledger import read_charges

        return read_charges(self.path / "ledger.jsonl")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """A line for each round, from accounted releases only; none where there are no rounds."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    @cached_property
    def model(self) -> RewardModel | SavedReward | SavedLikelihood:
        """What was learnt, a ``RewardModel``; of a language model what gives its rewards, or its
        log-likelihoods. All have ``score``.

        Raises:
            InputError: it cannot be loaded.
        """
        from murmuration.preference.language.likelihood import load_scorer

        return load_scorer(self.path / "model")


def train(**settings: Any) -> Run:
    """Train in this process, as ``murmuration run`` does, with the same defaults.

    Besides settings of the run: ``out``, ``resume`` and ``users_per_node``. Without ``out`` the run
    goes into a folder of its own below ``runs``.

    Raises:
        InputError: a setting or data that cannot be used.
        RunAborted: a node failed.
    """
    quiet_libraries()
    from murmuration.sims.runtimes.execute import execute

    users_per_node = settings.pop("users_per_node", None)
    config = _config(settings)
    result = execute(config, users_per_node=users_per_node, quiet=True)
    return Run(Path(config.out), result)


def plan(**numbers: Any) -> dict[str, Any]:
    """What ``murmuration plan --json`` prints: all numbers of a run from those that are given.

    Raises:
        InputError: numbers that do not determine a plan.
    """
    from murmuration.cli.plan import planned

    numbers = _named(numbers)
    for name in ("users", "cohort", "rounds", "group_size", "compute"):
        if name in numbers and type(numbers[name]) is not int:
            raise InputError(f"{name} must be a whole number; got {numbers[name]!r}")
    for name in ("epsilon", "noise_multiplier", "sampling_probability", "heldout"):
        if name in numbers and type(numbers[name]) not in (int, float):
            raise InputError(f"{name} must be a number; got {numbers[name]!r}")
    _check_names(numbers, _parameters(planned))
    return planned(**numbers)


def compare(
    strategies: Iterable[str],
    epsilons: Iterable[float],
    *,
    out: str | os.PathLike[str],
    seeds: int = 3,
    **settings: Any,
) -> list[Cell]:
    """Run strategies at equal budgets, one run after the other; a cell for each pair.

    ``strategies`` may name a variant, as in ``aup:published``. Runs lie below ``out``; those that
    are there already are read.

    Raises:
        InputError: settings or data that no strategy can use.
    """
    quiet_libraries()
    from murmuration.planning.compare import compare as compared

    names, budgets, folder = list(strategies), list(epsilons), Path(out).expanduser().absolute()
    if seeds < 1 or not names:
        raise InputError("seeds must be at least 1 and strategies must name one")
    base = _config({**settings, "out": str(folder / "runs")})
    folder.mkdir(parents=True, exist_ok=True)
    return compared(base, names, budgets, seeds, folder)


def _config(given: Mapping[str, Any]) -> RunConfig:
    """The settings that a command line with these options would make."""
    from murmuration.cli.run import run
    from murmuration.cli.run_settings import settings

    _check_names(given, [name for name in _parameters(run) if name not in _OF_THE_COMMAND])
    named = _named(given)
    if "adjacency" in named:
        named["adjacency"] = named["adjacency"].value
    return settings(named)


#: Options of ``murmuration run`` that say where it runs and what it prints.
_OF_THE_COMMAND = ("as_json", "config", "runtime", "workers", "cpus_per_worker", "gpus_per_worker")


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Values as options give them: paths as text, and what has a name by its name."""
    from murmuration.privacy.adjacency import Adjacency
    from murmuration.strategies.config import parse_delta

    found = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in given.items()
    }
    if "delta" in found:
        found["delta"] = parse_delta(str(found["delta"]))
    for name in [name for name, value in found.items() if value is None]:
        del found[name]  # as if it were not given
    if (named := found.get("adjacency")) is not None:
        try:
            found["adjacency"] = Adjacency(named)
        except ValueError:
            listed = ", ".join(Adjacency)
            raise InputError(f"adjacency must be one of {listed}; got {named!r}") from None
    return found


def _parameters(command: Callable[..., object]) -> list[str]:
    return list(inspect.signature(command).parameters)


def _check_names(given: Iterable[str], known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise InputError(f"unknown setting {name!r}; known: {', '.join(known)}")
