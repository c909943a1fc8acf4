"""One run, from its settings to its report; the same over every grid.

It opens the run's folder, loads what is learnt on, reads what that stands on, trains
(``server.training``), and writes what was learnt.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, cast

import numpy as np
from flwr.serverapp import Grid

from murmuration.preference.bases import base_of
from murmuration.preference.data.errors import InputError
from murmuration.preference.kinds.model import Model
from murmuration.preference.kinds.policy import PolicyModel
from murmuration.preference.kinds.starting import is_folder_of_a_model, with_start
from murmuration.preference.language.checkpoint import weights_digest
from murmuration.preference.model_folder import SaveOptions
from murmuration.privacy.accounting.ledger import BudgetExceeded
from murmuration.privacy.accounting.terms import caveat_sentences
from murmuration.privacy.disclosure import Public
from murmuration.privacy.plugins import brought
from murmuration.privacy.promise import Promise, ReleasedRun, combined, earlier_runs
from murmuration.server.baselines import (
    MOST_BY_A_LANGUAGE_MODEL,
    MOST_SCORED,
    beside_start,
    on_public_test,
)
from murmuration.server.evaluation import examples_of_test, on_bad_rows, read_test
from murmuration.server.policy_distance import measured
from murmuration.server.record.lineage import files_of, lineage_of, lineage_of_start
from murmuration.server.record.marks import lineage_of_data
from murmuration.server.record.result import Result
from murmuration.server.record.run_directory import RunDirectory
from murmuration.server.training import OnMetrics, begun, train
from murmuration.strategies.config import RunConfig
from murmuration.strategies.protocol.availability import RunAborted
from murmuration.strategies.registry import base_config, named


def run_training(
    config: RunConfig,
    grid: Grid,
    model: Model | None = None,
    on_metrics: OnMetrics = lambda line: None,
) -> dict[str, Any]:
    """Run ``config`` over ``grid``.

    Args:
        config: its settings.
        grid: where its nodes are.
        model: takes the place of what the config names to be learnt.
        on_metrics: hears each line of ``metrics.jsonl``.

    Returns:
        The result, which also stands in ``result.json``.

    Raises:
        InputError: settings, data or run directory that cannot be used; one line.
        RunAborted: nodes failed, or were not there; there is no result, and the run can be resumed.
    """
    with _opened(config) as folder:
        if (finished := folder.finished()) is not None:
            return finished.to_json()  # asking held-out users again would be one more release
        # Whose weights are for nodes; without a test they are needed once, to be saved.
        model = model or _begun(config)
        described = model.to_config()
        lineage, whose = _origin(config, described)
        folder.keep_lineage(run.name for run in lineage.runs)
        data = read_test(config)
        test = None if data is None else examples_of_test(data, model, on_bad_rows(config))
        trained = train(config, grid, folder, model, lineage, test=test, on_metrics=on_metrics)
        values, computed = trained.values, trained.computed
        own = ReleasedRun.read(folder.ledger_path)
        promise = lineage | Promise((own,))
        values["promise"] = computed(promise.to_json())
        # Nor is what stands on a seeded run.
        values["private"] = Public(values["private"] and not promise.seeded)
        first = [*earlier_runs(promise, own, whose), *_merged(described)]
        theirs = caveat_sentences(promise.caveats - own.terms.caveats)
        model = model.loaded()
        beside: dict[str, Any] | None = None
        if data is not None and config.task in ("reward", "policy"):
            score = partial(_scores, model, trained.theta_D) if model.trains else None
            most = MOST_BY_A_LANGUAGE_MODEL if config.base else MOST_SCORED
            judgements = data.as_judgements("users' texts are not judged")
            beside = on_public_test(judgements, score, most)
        if beside and test is not None and config.start:
            accuracy = test.accuracy(trained.theta_D)
            beside["start"] = beside_start(accuracy, test.accuracy(model.start_D))
        values["baselines"] = computed(beside)
        if config.start:
            first = [*_about_start(beside), *first]
        if config.task == "policy" and model.trains:
            moved, words = measured(cast(PolicyModel, model).network, trained.theta_D)
            figures = {**values["policy"], "moved": moved if isfinite(moved) else None}
            values["policy"] = computed(figures)
            first = [*words, *first]
        values["warnings"] = computed([*first, *theirs, *values["warnings"]])
        values["weights"] = Public("")  # known when the model is saved, with its card
        result = Result.from_disclosure(values)
        of_run = brought("murmuration.run_end").get("report")
        report = of_run.load()(config, promise, result) if of_run else None
        ledgers = None  # its run's lies beside it
        if model.holds_promise or lineage.runs:
            ledgers = partial(files_of, promise, details=report.details if report else None)
        place = folder.path / "model"
        options = SaveOptions(report.card() if report else "", overwrite=True, beside=ledgers)
        model.save(place, trained.theta_D, config.model, options)
        result = replace(result, weights=weights_digest(place))
        if report:
            report.write(folder.path, folder.metrics())
        folder.write_result(result)
        return result.to_json()


def check_run(config: RunConfig, grid: Grid) -> None:
    """Begin ``config`` over ``grid``, and stop where its rounds would be charged.

    Raises:
        InputError: it could not begin; one line.
        RunAborted: nodes failed.
    """
    with _opened(config) as folder:
        model = _begun(config)
        lineage, _ = _origin(config, model.to_config())
        if (data := read_test(config)) is not None:
            examples_of_test(data, model, on_bad_rows(config))
        with begun(config, grid, folder, model, lineage):
            pass


@contextmanager
def _opened(config: RunConfig) -> Iterator[RunDirectory]:
    """Open a run's folder; note in it why the run ended early, if it does.

    Raises:
        InputError: what went wrong, in one line.
    """
    with RunDirectory(config) as folder:
        try:
            yield folder
        except RunAborted as aborted:
            folder.abort(aborted.reason, aborted.sentence, aborted.private)
            raise
        except (ValueError, BudgetExceeded) as error:
            folder.discard_if_unused()
            if isinstance(error, InputError):
                raise
            raise InputError(" ".join(str(error).split())) from error
        except OSError as error:
            if error.errno is None or isinstance(error, ConnectionError | TimeoutError):
                raise  # not of a disk
            raise InputError(_of_disk(error, folder)) from error


def _begun(config: RunConfig) -> Model:
    """Return the model that the settings name, where it begins.

    Raises:
        InputError: they cannot be used.
    """
    return with_start(base_of(base_config(config), weights=bool(config.test)), config.start)


def _origin(config: RunConfig, described: Mapping[str, Any]) -> tuple[Promise, str]:
    """Return the earlier runs that a run's base, policies and rows came from, whose model has this
    description, and what of it was trained on users, for a warning.

    Raises:
        InputError: what an earlier run cost is not known, or cannot be added.
    """
    base = str(described.get("path", ""))
    of_base = lineage_of("--base" if config.base else "--features", base, config.base_privacy)
    theirs = named(config.strategy).lineage
    others = theirs(described, config) if theirs else None
    if is_folder_of_a_model(config.start):
        of_start = lineage_of_start(config.start, config.base_privacy)
        others = of_start if others is None else others | of_start
    rows = (("--data", config.data), ("--test", config.test))
    of_rows = combined(
        lineage_of_data(option, source, config.base_privacy) for option, source in rows
    )
    if others is not None:
        of_base |= others
        whose = "THE BASE, OR OTHER MODELS THAT ARE NAMED, WERE"
    elif not base:
        whose = "MODELS THAT WROTE THE DATA WERE"
    elif not of_rows.runs:
        whose = "THE BASE WAS"
    else:
        whose = f"{'THE BASE, OR ' if of_base.runs else ''}MODELS THAT WROTE THE DATA WERE"
    return of_base | of_rows, whose


def _about_start(beside: Mapping[str, Any] | None) -> list[str]:
    """Return a warning if a model is not known to be better than its start."""
    if beside is None:
        return [
            "Whether the model is better than its start is not known: figures of held-out users "
            "are one release, about the model alone. A public --test compares them at no cost."
        ]
    gain, error = (100 * beside["start"][name] for name in ("gain", "error"))
    if gain > 2 * error:
        return []
    below = "WORSE THAN" if gain < -2 * error else "NOT BETTER, BEYOND CHANCE, THAN"
    return [
        f"THE MODEL IS {below} ITS START on the public test: {gain:+.1f} ± {error:.1f} points by "
        "user. Take the start as it is, or train with more users or a larger epsilon."
    ]


def _of_disk(error: OSError, folder: RunDirectory) -> str:
    """The error message for a disk that is full or fails."""
    return (
        f"{error.filename or folder.path} cannot be written or read: {error.strerror}; every "
        "release is on the ledger: mend that, and continue with --resume"
    )


def _scores(
    model: Model, theta_D: np.ndarray, prompts: Sequence[str], responses: Sequence[str]
) -> np.ndarray:
    """Return the rewards of R prompts with R responses at θ, (R,)."""
    return model.scores([theta_D], prompts, responses)[0]


def _merged(described: Mapping[str, object]) -> list[str]:
    """A note that the base is an adapter, and how it was merged."""
    if not described.get("merged"):
        return []
    return [
        f"The base {described['path']} is an adapter: it was merged into the weights of "
        f"{described['merged']} before training, and the model is saved whole."
    ]
