"""``murmuration run``: one training run in simulation, from judgements to a reward model."""

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from murmuration.preference.data.judgements import InputError
from murmuration.preference.features.hashing import parse_features
from murmuration.preference.language.loading import resolve_base
from murmuration.privacy.adjacency import Adjacency
from murmuration.server.config import RunConfig
from murmuration.server.run_files import CHECK
from murmuration.sims.cli import options as about_data
from murmuration.sims.cli import options as about_model
from murmuration.sims.cli import options as about_run
from murmuration.sims.cli import options as about_strategy
from murmuration.sims.runtimes.execute import Runtime, execute
from murmuration.sims.runtimes.live_view import summary
from murmuration.sims.runtimes.ray_cluster import Workers
from murmuration.strategies.settings import FEW_ROUNDS

# From the options that were given to the settings of a run; with ``--resume`` upon its own.

#: The embedded population, by task: to train on, and other users to test on.
_EMBEDDED = {
    "reward": ("murmuration.population:train", "murmuration.population:test"),
    "text": ("murmuration.population:texts_train", "murmuration.population:texts_test"),
    "sft": ("murmuration.population:train", "murmuration.population:test"),
}


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
        data, test = _EMBEDDED.get(chosen.get("task", "reward"), _EMBEDDED["reward"])
        chosen = {"data": data, "test": test, **chosen}
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
    settings.pop(CHECK, None)
    return {**settings, "seed": seed.get("seed")}


def run(
    data: about_run.Data = None,
    test: about_run.Test = None,
    strategy: about_run.Strategy = None,
    model: about_run.Model = None,
    epsilon: about_run.Epsilon = None,
    delta: about_run.Delta = None,
    adjacency: about_run.Adjacency = None,
    rounds: about_run.Rounds = None,
    cohort: about_run.Cohort = None,
    users: about_run.Users = None,
    clip: about_run.Clip = None,
    group_size: about_run.GroupSize = None,
    retain: about_run.Retain = None,
    sampling_probability: about_strategy.SamplingProbability = None,
    normalized: about_strategy.Normalized = None,
    local_steps: about_strategy.LocalSteps = None,
    local_rate: about_strategy.LocalRate = None,
    variant: about_strategy.Variant = None,
    phases: about_strategy.Phases = None,
    schedule: about_strategy.Schedule = None,
    adaptation: about_strategy.Adaptation = None,
    quantile: about_strategy.Quantile = None,
    ridge: about_strategy.Ridge = None,
    ball: about_strategy.Ball = None,
    estimator: about_strategy.Estimator = None,
    level: about_strategy.Level = None,
    label_cap: about_strategy.LabelCap = None,
    label_delta: about_strategy.LabelDelta = None,
    label_weights: about_strategy.LabelWeights = None,
    sgd_steps: about_strategy.SgdSteps = None,
    sum_zero: about_strategy.SumZero = None,
    calibration: about_strategy.Calibration = None,
    features: about_run.Features = None,
    base: about_model.Base = None,
    task: about_model.Task = None,
    as_published: about_model.AsPublished = None,
    train: about_model.Train = None,
    lora_rank: about_model.LoraRank = None,
    lora_targets: about_model.LoraTargets = None,
    max_tokens: about_model.MaxTokens = None,
    batch_tokens: about_model.BatchTokens = None,
    batch_users: about_model.BatchUsers = None,
    user_memory: about_model.UserMemory = None,
    columns: about_run.Columns = None,
    on_bad_rows: about_run.OnBadRows = None,
    kind: about_data.Kind = None,
    responses: about_data.Responses = None,
    labels: about_data.Labels = None,
    most_judgements: about_data.MostJudgements = None,
    most_characters: about_data.MostCharacters = None,
    heldout: about_run.Heldout = None,
    heldout_epsilon: about_run.HeldoutEpsilon = None,
    exact_heldout: about_run.ExactHeldout = None,
    optimizer: about_run.Optimizer = None,
    learning_rate: about_run.LearningRate = None,
    momentum: about_run.Momentum = None,
    warmup: about_run.Warmup = None,
    averaging: about_run.Averaging = None,
    noise: about_run.Noise = None,
    honest_nodes: about_run.HonestNodes = None,
    secure_aggregation: about_run.SecureAggregation = None,
    seed: about_run.Seed = None,
    timeout: about_run.Timeout = None,
    users_per_node: about_run.UsersPerNode = None,
    runtime: about_run.Runtime = Runtime.LOCAL,
    workers: about_run.Workers = 0,
    cpus_per_worker: about_run.CpusPerWorker = 1,
    gpus_per_worker: about_run.GpusPerWorker = 0.0,
    out: about_run.Out = None,
    resume: about_run.Resume = False,
    accept_ledger_loss: about_run.AcceptLedgerLoss = False,
    as_json: about_run.AsJson = False,
) -> None:
    """Train a private reward model in simulation, or a language model with --task.

    Writes a folder with config, ledger, metrics, model, plots and report. A run that was
    interrupted continues with --resume --out FOLDER; other options need not be repeated.
    """
    given = dict(locals())  # options, all of which but these are settings of the run
    for name in _NO_SETTINGS:
        del given[name]
    given["adjacency"] = adjacency and adjacency.value
    config = settings(given, out, resume)
    places = Workers(workers, cpus_per_worker, gpus_per_worker)
    result = execute(config, runtime=runtime, users_per_node=users_per_node, workers=places)
    if as_json:
        print(json.dumps(result))
    else:
        Console().print(summary(result))


_NO_SETTINGS = (
    "users_per_node",
    "runtime",
    "workers",
    "cpus_per_worker",
    "gpus_per_worker",
    "out",
    "resume",
    "as_json",
)
