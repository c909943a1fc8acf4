"""Strategies side by side, as programs ask for it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from murmuration.api.rows import Source, write_rows
from murmuration.preference.data.rows import InputError
from murmuration.quiet import quiet_libraries

if TYPE_CHECKING:
    from murmuration.api.settings import RunSettings
    from murmuration.planning.compare import Cell


def compare(
    strategies: Iterable[str],
    epsilons: Iterable[float],
    *,
    out: str | os.PathLike[str],
    data: Source | None = None,
    test: Source | None = None,
    seeds: int = 3,
    **settings: Unpack[RunSettings],
) -> list[Cell]:
    """Run strategies at equal budgets, one run after the other.

        >>> from murmuration import compare
        >>> pair = {"prompt": "What now?", "chosen": "Save it.", "rejected": "Bet on it."}
        >>> rows = [{"user_id": f"user {n}", **pair} for n in range(200)]
        >>> cells = compare(
        ...     ["uls", "nonprivate"], [1.0], out="runs/side-by-side", data=rows, rounds=2, seeds=1
        ... )
        >>> [(cell.strategy, cell.epsilon) for cell in cells]
        [('uls', 1.0), ('nonprivate', None)]

    Args:
        strategies: Their names; of a variant as in ``aup:published``.
        epsilons: Privacy budgets.
        out: Folder for the runs; those that are there already are read.
        data: What to train on, as in ``train``.
        test: What to measure accuracy on, as in ``train``.
        seeds: Runs of each strategy and budget, each with another seed.
        **settings: As in ``train``.

    Returns:
        A cell for each strategy and budget: the results of its runs, or why there are none.

    Raises:
        InputError: settings or data that no strategy can use.
    """
    quiet_libraries()
    from murmuration.api.config import config_of
    from murmuration.planning.compare import compare as compare_configs

    names, budgets, folder = list(strategies), list(epsilons), Path(out).expanduser().absolute()
    if seeds < 1 or not names:
        raise InputError("seeds must be at least 1 and strategies must name one")
    sources = {
        name: source for name, source in (("data", data), ("test", test)) if source is not None
    }
    base = config_of(sources, folder, settings)
    write_rows(sources, folder, again=(folder / "runs").exists())
    folder.mkdir(parents=True, exist_ok=True)
    return compare_configs(base, names, budgets, seeds, folder)
