"""``murmuration run``: one training run in simulation, from judgements to a reward model."""

import json
import shlex
import sys
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import click
import typer
from rich.console import Console

from client.app import app as client_app
from client.store import load
from preference.features import parse_features
from preference.judgements import InputError
from preference.language_base import TRAINED
from preference.language_loading import resolve_base
from preference.models import MODELS, preference_model
from privacy.adjacency import Adjacency
from server.app import app as server_app
from server.config import (
    ADAPTATIONS,
    CALIBRATIONS,
    ESTIMATORS,
    FEW_ROUNDS,
    LABEL_WEIGHTS,
    LEVELS,
    SCHEDULES,
    SGD_STEPS,
    STRATEGIES,
    VARIANTS,
    RunConfig,
    parse_delta,
)
from server.noise import NOISES
from server.run_directory import RunDirectory
from sims.flower import run_flower
from sims.live import LiveView, summary
from sims.local import run_local
from sims.ray_grid import Workers, run_ray

#: Sums of single nodes are hidden among so many, unless it is said how many users a node has.
_MASKING_NODES = 5
_EMBEDDED, _EMBEDDED_TEST = "sims.population:train", "sims.population:test"


class Runtime(StrEnum):
    """Where the ServerApp and ClientApp run."""

    LOCAL = "local"
    FLOWER = "flower"
    RAY = "ray"


def _option(help_: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_, show_default=False, **more)


def run(
    data: Annotated[
        str | None,
        _option(
            "Judgements to train on: a .jsonl, .csv or .parquet file (also .gz), a folder of them, "
            "package.module:function, or a hub name. Default: the embedded population."
        ),
    ] = None,
    test: Annotated[
        str | None,
        _option(
            "Judgements of other users, declared public. Without it, a share of users is held out."
        ),
    ] = None,
    strategy: Annotated[
        str | None, _option("Algorithm. [default: uls]", click_type=click.Choice(STRATEGIES))
    ] = None,
    model: Annotated[
        str | None,
        _option(
            "Model of preferences: btl or thurstone for pairs, plackett-luce for the best of "
            "several or rankings. [default: btl]",
            click_type=click.Choice(MODELS),
        ),
    ] = None,
    epsilon: Annotated[float | None, _option("Privacy budget. [default: 3]")] = None,
    delta: Annotated[
        float | None,
        _option(
            "Delta, well below 1 / users; or n^-1.1, of the number of users. [default: 1e-5]",
            parser=parse_delta,
        ),
    ] = None,
    adjacency: Annotated[
        Adjacency | None, _option("Which data sets are neighbours. [default: add-remove]")
    ] = None,
    rounds: Annotated[
        int | None,
        _option("Rounds of training. [default: 200, or 1 where the model is solved for]"),
    ] = None,
    cohort: Annotated[int | None, _option("Expected users in a round. [default: 500]")] = None,
    users: Annotated[
        int | None, _option("Nominal number of users, if their number is not public.")
    ] = None,
    clip: Annotated[
        float | None, _option("Clip norm of a user's gradient. [default: the strategy's]")
    ] = None,
    group_size: Annotated[
        int | None, _option("Most judgements of a user in a round. [default: the strategy's]")
    ] = None,
    retain: Annotated[
        int | None,
        _option("Most judgements of a user in the whole run (uls, dp-fedavg). [default: all]"),
    ] = None,
    sampling_probability: Annotated[
        float | None,
        _option(
            "els, group: how likely each kept judgement is in a round. [default: as much work as "
            "uls with --cohort]"
        ),
    ] = None,
    normalized: Annotated[
        bool | None,
        _option("Divide by the clip norm, so that step sizes do not depend on it.", "--normalized"),
    ] = None,
    local_steps: Annotated[
        int | None, _option("dp-fedavg: steps a user takes on their own. [default: 4]")
    ] = None,
    local_rate: Annotated[
        float | None, _option("dp-fedavg: length of these steps. [default: 1]")
    ] = None,
    variant: Annotated[
        str | None,
        _option("aup: which form of it. [default: centred]", click_type=click.Choice(VARIANTS)),
    ] = None,
    phases: Annotated[
        int | None, _option("aup, published: phases on disjoint halves of the users. [default: 1]")
    ] = None,
    schedule: Annotated[
        str | None,
        _option(
            "aup, published: phases, steps and radii as given, or by the paper's theorem. "
            "[default: constant]",
            click_type=click.Choice(SCHEDULES),
        ),
    ] = None,
    adaptation: Annotated[
        str | None,
        _option(
            "aup, centred: how the radius adapts. [default: quantile]",
            click_type=click.Choice(ADAPTATIONS),
        ),
    ] = None,
    quantile: Annotated[
        float | None, _option("adaptive, aup: share of users within the radius. [default: 0.15]")
    ] = None,
    ridge: Annotated[
        float | None,
        _option(
            "label-moment, objective-perturbation, local-label: curvature added to the likelihood. "
            "[default: by the noise and public features]"
        ),
    ] = None,
    ball: Annotated[
        float | None,
        _option("As --ridge: the most that the weights' length may be."),
    ] = None,
    estimator: Annotated[
        str | None,
        _option(
            "local-label: how the model is fitted to randomized labels. [default: debiased]",
            click_type=click.Choice(ESTIMATORS),
        ),
    ] = None,
    level: Annotated[
        str | None,
        _option(
            "local-label: epsilon is for all labels of a user together, or for each item's. "
            "[default: user]",
            click_type=click.Choice(LEVELS),
        ),
    ] = None,
    label_cap: Annotated[
        int | None, _option("local-label: most labels a user ever tells. [default: all they have]")
    ] = None,
    label_delta: Annotated[
        float | None,
        _option("local-label, user level: the part of delta that labels are told with."),
    ] = None,
    label_weights: Annotated[
        str | None,
        _option(
            "local-label: judgements count by what their labels tell, or all the same. "
            "[default: information]",
            click_type=click.Choice(LABEL_WEIGHTS),
        ),
    ] = None,
    sgd_steps: Annotated[
        str | None,
        _option(
            "local-label, sgd: falling steps and averages, or as published. [default: decaying]",
            click_type=click.Choice(SGD_STEPS),
        ),
    ] = None,
    sum_zero: Annotated[
        bool | None, _option("local-label: only weights that sum to zero.", "--sum-zero")
    ] = None,
    calibration: Annotated[
        str | None,
        _option(
            "objective-perturbation: the accountant's noise, or the paper's. [default: analytic]",
            click_type=click.Choice(CALIBRATIONS),
        ),
    ] = None,
    features: Annotated[
        str | None, _option("hashing, or a transformer encoder's path or hub name.")
    ] = None,
    base: Annotated[
        str | None,
        _option("A language model to train a reward head on: a folder, or a hub name."),
    ] = None,
    train: Annotated[
        str | None,
        _option("What of --base is trained. [default: lora]", click_type=click.Choice(TRAINED)),
    ] = None,
    lora_rank: Annotated[int | None, _option("Rank of LoRA. [default: 16]")] = None,
    lora_targets: Annotated[
        str | None,
        _option("Layers that LoRA changes, comma-separated. [default: by architecture]"),
    ] = None,
    max_tokens: Annotated[
        int | None,
        _option("Most tokens of prompt and response; prompts are cut in front. [default: 256]"),
    ] = None,
    batch_tokens: Annotated[
        int | None, _option("Tokens that are computed at a time. [default: as suits the device]")
    ] = None,
    user_memory: Annotated[
        int | None,
        _option("MiB for the gradients of single users, at a time. [default: 512]"),
    ] = None,
    columns: Annotated[
        str | None, _option("Renamed columns: user_id=annotator,chosen=better,…")
    ] = None,
    on_bad_rows: Annotated[
        str | None, _option("refuse (default) or skip: set aside rows that cannot be used.")
    ] = None,
    heldout: Annotated[
        float | None, _option("Share of users held out when there is no --test. [default: 0.2]")
    ] = None,
    optimizer: Annotated[
        str | None, _option("sgd, adam or adafactor. [default: the strategy's]")
    ] = None,
    learning_rate: Annotated[
        float | None, _option("Step size. [default: limited by the noise]")
    ] = None,
    momentum: Annotated[float | None, _option("Momentum. [default: 0.9]")] = None,
    warmup: Annotated[float | None, _option("Share of rounds of warm-up. [default: 0.05]")] = None,
    averaging: Annotated[
        float | None, _option("Share of last rounds that are averaged. [default: 0.25]")
    ] = None,
    noise: Annotated[
        str | None,
        _option(
            "discrete (exact whole numbers) or gaussian (floating point). [default: discrete where "
            "there is no seed and OpenDP is installed]",
            click_type=click.Choice(NOISES),
        ),
    ] = None,
    secure_aggregation: Annotated[
        bool | None,
        _option(
            "Let nodes mask their sums: the server sees the cohort's sum only.",
            "--secure-aggregation",
        ),
    ] = None,
    seed: Annotated[
        int | None, _option("Repeat a simulation exactly. Without: from the operating system.")
    ] = None,
    users_per_node: Annotated[
        int | None, _option("Users on each simulated node. [default: as suits the runtime]")
    ] = None,
    runtime: Annotated[
        Runtime,
        typer.Option(
            help="local: this process. flower: flwr run, own SuperLink. ray: Ray actors, here or "
            "on the cluster at RAY_ADDRESS."
        ),
    ] = Runtime.LOCAL,
    workers: Annotated[
        int, _option("ray: how many workers share the users. [default: as there is room for]")
    ] = 0,
    cpus_per_worker: Annotated[int, _option("ray: processors of a worker. [default: 1]")] = 1,
    gpus_per_worker: Annotated[
        float, _option("ray: GPUs of a worker, 0.25 for a quarter. [default: 0]")
    ] = 0.0,
    out: Annotated[str | None, _option("Folder for the run. [default: runs/<time>]")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON line.")
    ] = False,
) -> None:
    """Train a private reward model in simulation.

    Writes a folder with config, ledger, metrics, model, plots and report. A run that was
    interrupted continues with --resume --out FOLDER; other options need not be repeated.
    """
    given = {
        "data": data,
        "test": test,
        "strategy": strategy,
        "model": model,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": adjacency and adjacency.value,
        "rounds": rounds,
        "cohort": cohort,
        "users": users,
        "clip": clip,
        "group_size": group_size,
        "retain": retain,
        "sampling_probability": sampling_probability,
        "normalized": normalized,
        "local_steps": local_steps,
        "local_rate": local_rate,
        "variant": variant,
        "phases": phases,
        "schedule": schedule,
        "adaptation": adaptation,
        "quantile": quantile,
        "ridge": ridge,
        "ball": ball,
        "estimator": estimator,
        "level": level,
        "label_cap": label_cap,
        "label_delta": label_delta,
        "label_weights": label_weights,
        "sgd_steps": sgd_steps,
        "sum_zero": sum_zero,
        "calibration": calibration,
        "features": features,
        "base": base,
        "train": train,
        "lora_rank": lora_rank,
        "lora_targets": lora_targets,
        "max_tokens": max_tokens,
        "batch_tokens": batch_tokens,
        "user_memory": user_memory,
        "columns": columns,
        "on_bad_rows": on_bad_rows,
        "heldout": heldout,
        "optimizer": optimizer,
        "learning_rate": learning_rate,
        "momentum": momentum,
        "warmup": warmup,
        "averaging": averaging,
        "noise": noise,
        "secure_aggregation": secure_aggregation,
        "seed": seed,
    }
    config = settings(given, out, resume)
    places = Workers(workers, cpus_per_worker, gpus_per_worker)
    result = execute(config, runtime=runtime, users_per_node=users_per_node, workers=places)
    if as_json:
        print(json.dumps(result))
    else:
        Console().print(summary(result))


def execute(
    config: RunConfig,
    *,
    runtime: Runtime = Runtime.LOCAL,
    users_per_node: int | None = None,
    workers: Workers = Workers(),  # noqa: B008  frozen
    quiet: bool = False,
) -> dict[str, Any]:
    """Run a config in a runtime, with a live view on stderr unless ``quiet``; its result.

    Raises:
        InputError: data or settings that cannot be used.
        FlowerRunFailed: Flower could not complete the run.
    """
    folder = Path(config.out)
    target = config.epsilon if config.strategy != "nonprivate" else None
    if config.resume and (folder / "result.json").exists():
        RunDirectory(config)  # refuses other settings
        return json.loads((folder / "result.json").read_text(encoding="utf-8"))
    live = LiveView(folder, config.rounds, config.cohort, target, config.strategy)
    try:
        with nullcontext() if quiet else live:
            live.stage("loading judgements")
            nodes = _nodes(config, runtime, users_per_node, live)
            live.stage("computing features")
            if runtime is Runtime.LOCAL:
                run_local(
                    config.to_run_config(),
                    nodes=nodes,
                    server_app=server_app,
                    client_app=client_app,
                )
            elif runtime is Runtime.RAY:
                live.stage("starting Ray")
                run_ray(
                    config.to_run_config(),
                    load(config.data, config.columns, config.on_bad_rows),
                    nodes=nodes,
                    workers=workers,
                    server_app=server_app,
                    client_app=client_app,
                )
            else:
                live.stage("starting Flower")
                folder.parent.mkdir(parents=True, exist_ok=True)
                log = folder.with_name(f"{folder.name}.flower.log")
                try:
                    run_flower(config.to_run_config(), nodes=nodes, log=log)
                finally:
                    # What nodes print depends on their data.
                    if log.exists() and (folder / "private").exists():
                        log.rename(folder / "private" / "flower.log")
    except KeyboardInterrupt:
        # The command-line library turns this into exit code 130, without a word.
        begun = (folder / "config.json").exists()
        advice = f"; continue with: murmuration run --resume --out {shlex.quote(str(folder))}"
        print("interrupted" + (advice if begun else ""), file=sys.stderr)
        raise
    return json.loads((folder / "result.json").read_text(encoding="utf-8"))


def settings(given: dict[str, Any], out: str | None, resume: bool) -> RunConfig:
    """The settings that options ask for (None: not given); with ``resume`` on top of a run's own.

    Raises:
        InputError: a value that no run could use, or nothing to resume.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    for name in ("data", "test"):
        if name in chosen and Path(chosen[name]).expanduser().exists():
            chosen[name] = str(Path(chosen[name]).expanduser().absolute())
    if chosen.get("rounds") == 0:  # which in settings means: as many as suit the strategy
        raise InputError("--rounds must be at least 1; got 0")
    if chosen.get("base"):
        chosen["base"] = resolve_base(chosen["base"])
    if "features" in chosen:
        named = chosen["features"].strip()
        chosen["features"] = parse_features(named).get("path", named)
    if resume:
        if not out:
            raise InputError("--resume needs --out: which run is to be continued?")
        chosen = {**_former(Path(out).expanduser()), **chosen}
    elif "data" not in chosen:
        chosen = {"data": _EMBEDDED, "test": _EMBEDDED_TEST, **chosen}
    if "cohort" in chosen and chosen.get("strategy") in FEW_ROUNDS and not resume:
        raise InputError(
            f"--cohort has no meaning for --strategy {chosen['strategy']}: everybody takes part"
        )
    if chosen.get("strategy") == "local-label":
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
    return {**settings, "seed": seed.get("seed")}


def _nodes(config: RunConfig, runtime: Runtime, users_per_node: int | None, live: LiveView) -> int:
    """How many nodes host the users (0: one for each worker); loads and checks the judgements."""
    judgements = load(config.data, config.columns, config.on_bad_rows)
    preference_model(config.model, judgements.kind, judgements.most_responses - 1)
    if not judgements.decided:
        raise InputError(f"{config.data}: every judgement is a tie, there is nothing to learn")
    if judgements.set_aside:
        first = judgements.set_aside[0]
        live.note(f"{len(judgements.set_aside)} rows set aside, the first: {first}")
    users = len(judgements.user_ids)
    if users_per_node is not None and users_per_node < 1:
        raise InputError(f"--users-per-node must be at least 1; got {users_per_node}")
    former = Path(config.out) / "private" / "nodes.json"
    if users_per_node is None and config.resume and former.exists():
        return int(json.loads(former.read_text(encoding="utf-8"))["nodes"])
    if users_per_node is None and runtime is Runtime.RAY:
        return 0
    if users_per_node is None:
        if config.secure_aggregation:
            return min(_MASKING_NODES, users)
        # One node computes everything in one batch; Flower runs one per two-core actor pair.
        return 1 if runtime is Runtime.LOCAL else min(2, users)
    return -(-users // users_per_node)
