"""``murmuration run``: one training run in simulation, from judgements to a reward model."""

import inspect
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from murmuration.cli import about_data
from murmuration.cli.options import ReportTo, RunName, WithStrategyHelp, setting_parameters
from murmuration.preference.data.data_sets import absolute, parse_source
from murmuration.preference.data.rows import InputError
from murmuration.preference.features.hashing import AUTO, chosen_features, parse_features
from murmuration.preference.online import is_of_hub, is_online
from murmuration.privacy.adjacency import Adjacency
from murmuration.reporting.live.terminal import Terminal
from murmuration.sims.runtimes.ray_cluster import Workers
from murmuration.sims.runtimes.runtime import Runtime
from murmuration.strategies import registry
from murmuration.strategies.config import CHECK, RunConfig, read_settings, typed
from murmuration.strategies.local_label import LOCAL_LABEL
from murmuration.strategies.settings import OUTPUT, RUNTIME

# From the options that were given to the settings of a run; with ``--resume`` upon its own.

#: The embedded population, by task: to train on, and other users to test on.
_EMBEDDED = {
    "reward": ("murmuration.population:train", "murmuration.population:test"),
    "text": ("murmuration.population:texts_train", "murmuration.population:texts_test"),
    "sft": ("murmuration.population:train", "murmuration.population:test"),
    "policy": ("murmuration.population:train", "murmuration.population:test"),
}


def settings(given: dict[str, Any]) -> RunConfig:
    """The settings that options ask for (None: not given); with ``resume`` on top of the run's in
    ``out``.

    Raises:
        InputError: a value that no run could use, or nothing to resume.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name, value in chosen.items():
        chosen[name] = typed(name, value)
    out, resume = chosen.pop("out", None), chosen.pop("resume", False)
    for name in ("data", "test"):
        if chosen.get(name):
            chosen[name] = absolute(chosen[name])
    for name in ("rounds", "cohort"):  # where 0 in settings means: as suits the strategy and users
        if chosen.get(name) == 0 and not resume:
            raise InputError(f"--{name} must be at least 1; got 0")
    if chosen.get("base"):
        from murmuration.preference.language.loading import resolve_base

        chosen["base"] = resolve_base(chosen["base"])
    if chosen.get("policies"):
        from murmuration.preference.language.policy_class import with_digest

        chosen["policies"] = with_digest(chosen["policies"])
    if "features" in chosen:
        given, named = chosen["features"].strip(), chosen_features(chosen["features"]).strip()
        if given == AUTO:
            print(f"--features auto: {named}", file=sys.stderr)
        chosen["features"] = parse_features(named).get("path", named)
    if resume:
        if not out:
            raise InputError("--resume needs --out, the folder of the run to continue")
        former = _former(Path(out).expanduser())
        _ask_no_hub(former, chosen)
        chosen = {**former, **chosen}
    elif "data" not in chosen:
        data, test = _EMBEDDED.get(chosen.get("task", "reward"), _EMBEDDED["reward"])
        chosen = {"data": data, "test": test, **chosen}
    if "cohort" in chosen and chosen.get("strategy") in registry.solved() and not resume:
        raise InputError(
            f"--cohort has no meaning for --strategy {chosen['strategy']}: everybody takes part"
        )
    if "thumbs" in (chosen.get("kind"), chosen.get("model")):  # one goes with the other
        chosen = {"kind": "thumbs", "model": "thumbs", **chosen}
    if chosen.get("strategy") == LOCAL_LABEL.name:
        chosen.setdefault("adjacency", Adjacency.REPLACE_LABELS.value)  # there is no other
    defaults = asdict(RunConfig())
    del defaults["rounds"]  # what it is depends on the strategy
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    place = Path(out).expanduser() if out else Path("runs") / stamp
    return RunConfig.from_run_config(
        {**defaults, **chosen, "out": str(place.absolute()), "resume": resume}
    )


def _former(folder: Path) -> dict[str, Any]:
    """The settings of the run in a folder."""
    try:
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        seed = json.loads((folder / "private" / "seed.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"--resume: there is no run in {folder} ({error})") from None
    if not isinstance(settings, dict) or not isinstance(seed, dict):
        raise InputError(f"--resume: the files of the run in {folder} are damaged")
    if settings.pop(CHECK, None) is None:
        raise InputError(
            f"--resume: the run in {folder} was begun by an earlier version, whose unfinished runs "
            "cannot be resumed (or its config.json was edited): begin again with another --out"
        )
    return {**settings, "seed": seed.get("seed")}


def _ask_no_hub(written: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Let nothing ask a hub, in this process and those that it starts, where what a file has
    ``written`` names something of one that was not ``given``; unless `--online` was said."""
    names = {name: str(written.get(name) or "") for name in ("base", "features", "data", "test")}
    of_hub = [
        name for name, text in names.items()
        if given.get(name) is None and text != "hashing" and is_of_hub(parse_source(text).name)
    ]  # fmt: skip
    if of_hub and not is_online():
        os.environ["HF_HUB_OFFLINE"] = "1"


def run(
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Settings from a file: TOML with options' names, or the config.json of a run. "
            "Options override it.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    users_per_node: Annotated[
        int | None,
        typer.Option(
            help=r"Users on each simulated node. \[default: as suits the runtime]",
            show_default=False,
            rich_help_panel=RUNTIME,
        ),
    ] = None,
    runtime: Annotated[
        Runtime,
        typer.Option(
            help="local: this process. flower: flwr run, own SuperLink. ray: Ray actors, here or "
            "on the cluster at RAY_ADDRESS.",
            rich_help_panel=RUNTIME,
        ),
    ] = Runtime.LOCAL,
    workers: Annotated[
        int,
        typer.Option(
            help=r"ray: how many workers share the users. \[default: as there is room for]",
            show_default=False,
            rich_help_panel=RUNTIME,
        ),
    ] = 0,
    cpus_per_worker: Annotated[
        int, typer.Option(help="ray: processors of a worker.", rich_help_panel=RUNTIME)
    ] = 1,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(
            help="ray: GPUs of a worker; 0.25 for a quarter. "
            r"\[default: 1 with --base where the cluster has any, else 0]",
            show_default=False,
            rich_help_panel=RUNTIME,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print the result as one JSON line.", rich_help_panel=OUTPUT),
    ] = False,
    user_column: about_data.UserColumn = None,
    split: about_data.Split = None,
    data_config: about_data.DataConfig = None,
    report_to: ReportTo = None,
    run_name: RunName = None,
    **given: Any,
) -> None:
    """Train a private reward model in simulation, or a language model with --task.

    Writes a folder with config, ledger, metrics, model, plots and report. A run that was
    interrupted continues with --resume --out FOLDER; other options need not be repeated.
    """
    from murmuration.reporting.live.live_view import summary
    from murmuration.reporting.live.tracking import tracked
    from murmuration.sims.runtimes.execute import execute

    given = {name: value for name, value in given.items() if value is not None}
    written = read_settings(config) if config else {}
    _ask_no_hub(written, given)
    given = {**written, **given}
    if user_column is not None:
        given["columns"] = about_data.renamed(given.get("columns"), user_column)
    if (data := about_data.located(given.get("data"), split, data_config)) is not None:
        given["data"] = data
    chosen = settings(given)
    shares = {} if gpus_per_worker is None else {"gpus": gpus_per_worker}
    places = Workers(workers, cpus_per_worker, **shares)
    with tracked(chosen.out, report_to, run_name, resume=chosen.resume):
        result = execute(chosen, runtime=runtime, users_per_node=users_per_node, workers=places)
    if as_json:
        print(json.dumps(result))
    else:
        Terminal().print(summary(result))


#: Its class, whose help depends on the strategy that is named.
COMMAND = WithStrategyHelp

# Typer reads options from the signature; those of settings take the place of ``given``.
_SIGNATURE = inspect.signature(run)
_FIXED = [p for p in _SIGNATURE.parameters.values() if p.kind is not p.VAR_KEYWORD]
run.__signature__ = _SIGNATURE.replace(parameters=[*setting_parameters(), *_FIXED])  # type: ignore[attr-defined]
run.__annotations__ = {p.name: p.annotation for p in run.__signature__.parameters.values()}  # type: ignore[attr-defined]
