"""``murmuration run``: one training run in simulation, from judgements to a reward model."""

import json

from rich.console import Console

from sims import language_options as about_model
from sims import run_options as about_run
from sims import schema_options as about_data
from sims import strategy_options as about_strategy
from sims.execution import Runtime, execute
from sims.live import summary
from sims.ray_cluster import Workers
from sims.run_settings import settings


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
