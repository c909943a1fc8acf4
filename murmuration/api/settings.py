"""The settings of a run by concern, with their types: keywords of ``train``.

Written by `python docs/write_settings.py` from the declarations in `strategies/`.
"""

import os
from collections.abc import Mapping
from typing import Literal, TypedDict

from murmuration.privacy.adjacency import Adjacency


class DataSettings(TypedDict, total=False):
    """Of a run: data."""

    columns: str | Mapping[str, str]
    """Columns of other names, as field=column: user_id=annotator,chosen=better,…"""

    user_column: str
    """Column that says who judged: short for ``columns={"user_id": …}``."""

    format: str
    """Form in which another system exported the rows: arena, arena-models, argilla, community-
    alignment, helpsteer, label-studio, likert, multipref, oasst, openwebui, polis, prism, tldr,
    or one of an installed package. [default: our own]"""

    on_bad_rows: str
    """refuse (default) or skip: leave out rows that cannot be used."""

    kind: Literal["pairs", "top-1", "ranking", "thumbs"]
    """What each judgement is: pairs, top-1 (the best of several), ranking, or thumbs (one
    response, liked or not). [default: pairs, which are also made of thumbs]"""

    responses: int
    """Most responses of a judgement. top-1, ranking: 2 to 64."""

    labels: Literal["true", "randomized"]
    """true, or randomized, if every row has its flip_probability. [default: true]"""

    max_judgements: int
    """Most judgements (or texts) of a user. [default: 10000]"""

    max_characters: int
    """Most characters of a text. [default: 100000]"""

    one_user_per_row: bool
    """There is no column of users: each row counts as a user of its own, and only single rows
    are protected."""

    scale: str
    """Labels that are numbers, as LOW..HIGH: thumbs are up above the middle (1..5), and of two
    responses the first won below it (-3..3). HIGH..LOW where the lowest is the best. [default:
    labels are words, and numbers are bad rows]"""

    positive_from: str
    """Least number of a label that is a thumb up, as 4 of 1 to 5."""

    no_prompt: bool
    """Rows without a prompt have none. [default: it is what their texts share in front]"""

    ids: str
    """casefold: ids that differ only in upper and lower case are one user's."""

    heldout: float
    """Share of users held out when there is no --test; 0: nobody, and no accuracy is measured.
    [default: 0.2]"""


class PrivacySettings(TypedDict, total=False):
    """Of a run: privacy."""

    heldout_epsilon: float
    """Budget for the accuracy on held-out users. [default: half of --epsilon, which is part of
    it; under replace and replace-labels all of it, at no extra cost]"""

    exact_heldout: bool
    """Report the exact accuracy on held-out users, OUTSIDE THE GUARANTEE."""

    epsilon: float
    """Privacy budget. [default: 3]"""

    delta: float | str
    """Delta of the promise. Well below 1 / users; or n^-1.1, of the number of users. [default:
    1e-5]"""

    adjacency: Adjacency | str
    """Which data sets are neighbours. [default: add-remove]"""

    users: int
    """Number of users. To train on, as a nominal, round, public figure."""

    base_privacy: str
    """Privacy cost of training --base, or an encoder, where its folder does not record it:
    public, or the ledger.jsonl of the run that made it (of several, comma-separated). [default:
    as its folder records]"""

    population: str
    """A name of your own for the people trained on. If --base, or an encoder, was trained on
    the same people, or on people without such a name, epsilons add up."""

    disjoint: bool
    """Declare that nobody in --population is among the people that --base, or an encoder, was
    trained on."""

    chosen_from_data: bool
    """Settings were chosen by looking at the data, as `murmuration data` does: epsilon does not
    cover what they tell, and the promise says so."""

    noise: Literal["discrete", "gaussian", "distributed"]
    """discrete (exact whole numbers), gaussian (floating point), or distributed (added by the
    nodes, in shares, under masks). [default: discrete if there is no seed and OpenDP is
    installed]"""

    honest_nodes: int
    """--noise distributed: the least number of nodes that add their shares of noise honestly
    and do not drop out. [default: more than two thirds of those registered]"""

    secure_aggregation: bool
    """Let nodes mask their sums: the server sees only the sum over the cohort."""


class TrainingSettings(TypedDict, total=False):
    """Of a run: training."""

    strategy: str
    """Algorithm. [default: uls]"""

    rounds: int
    """Rounds of training. [default: 200, or 1 if the strategy takes one round]"""

    cohort: int
    """Expected users in a round. [default: a fifth of --users, at least 100 (or all) and at
    most 500; 500 if their number is private and --users is left out]"""

    clip_norm: float
    """Clip norm of a user's gradient. els, group: of one judgement's; aup: the radius.
    [default: the strategy's]"""

    group_size: int
    """Most judgements (or texts) of a user in a round. [default: the strategy's]"""

    optimizer: str
    """Optimizer. sgd or adam. [default: the strategy's]"""

    learning_rate: float
    """Learning rate. [default: limited by the noise]"""

    momentum: float
    """Momentum. [default: 0.9]"""

    warmup: float
    """Share of the first rounds, in which the step size rises. [default: 0.05]"""

    averaging: float
    """Share of the last rounds, whose models are averaged. [default: 0.25]"""

    keep_last: int
    """Keep the parameters after each of the last N rounds, for `align --pessimism`. They are
    covered by the same epsilon. [default: none]"""


class ModelSettings(TypedDict, total=False):
    """Of a run: model."""

    model: Literal["btl", "thurstone", "plackett-luce", "thumbs"]
    """Preference model: btl or thurstone for pairs, plackett-luce for the best of several or
    rankings, thumbs for --kind thumbs. [default: btl]"""

    features: str
    """hashing, minilm (a small encoder), auto (minilm where installed), an encoder's path or
    hub name, or smollm2 or a GGUF file (a frozen language model's states)."""

    length: Literal["bounded", "none", "log"]
    """How a response's length counts among these features: bounded, so that padding soon pays
    nothing; none; or log, which pays for it without end. [default: bounded]"""

    base: str | os.PathLike[str]
    """The base: a folder, or a hub name. A language model to train: see --task."""

    system: str
    """System prompt, before prompts that have none of their own, as the base's chat template
    writes it. [default: that which --base was trained with, else as its template does by
    itself]"""

    task: Literal["reward", "text", "sft", "policy"]
    """What is trained. reward: from judgements. text: the next token of users' own texts
    (user_id, text). sft: that of the responses in judgements. policy: a model that answers as
    people prefer. [default: reward]"""

    loss: Literal["dpo", "ipo", "chipo", "square-chipo", "square-dpo", "robust-dpo"]
    """policy: dpo, ipo, chipo; or square-chipo, square-dpo, robust-dpo, which correct for
    randomized labels. [default: dpo]"""

    beta: float
    """policy: the reward that a log-ratio of one stands for. [default: 1]"""

    r_max: float
    """policy: rewards' differences are clipped at twice this, by chipo, square-chipo, square-
    dpo. [default: 2]"""

    as_published: bool
    """sft: train on chosen responses only, as published; that looks at labels."""

    train: Literal["head", "lora", "full"]
    """Which weights of --base are trained. [default: lora]"""

    head_layer: int
    """--train head: layers of --base below the head; those above are left out. [default:
    all]"""

    head_pooling: Literal["last", "mean"]
    """--train head: whether the head reads a text's last state, or the mean of all. [default:
    last]"""

    lora_rank: int
    """Rank of LoRA. [default: 16]"""

    lora_alpha: int
    """Alpha of LoRA, whose change is multiplied by alpha / rank. [default: the rank]"""

    lora_targets: str
    """Layers that LoRA changes, comma-separated, or all-linear. [default: by architecture]"""

    lora_layers: str
    """Which layers of --base LoRA changes: all, last:4, or 9-12. auto: the last 2 (align: 8),
    or all where there are no more. What a text gives below the first is computed once and kept.
    [default: auto]"""

    max_tokens: int
    """Most tokens of prompt and response (longer prompts lose their beginning), or of a window
    of a text. [default: 256]"""

    batch_tokens: int
    """Tokens of a user that are computed at a time. [default: as suits the device]"""

    dtype: str
    """What --base computes in: float32, bfloat16, float16, or auto: bfloat16 where the machine
    on which the run begins is fast in it. What is trained, and users' gradients, stay float32.
    [default: bfloat16 on a GPU that has it, else float32]"""

    checkpointing: bool
    """Compute activations of --base once more instead of keeping them: less memory, a third
    more computing."""

    once_per_text: bool
    """Compute the gradient of each distinct text once in a round, for all of a node's users who
    judged it. Pays where texts were judged by several users, or often."""

    batch_users: bool
    """Let nodes compute several users at once (language models; a GPU). That no user moves the
    others' vectors is then only measured, not proven."""


class RuntimeSettings(TypedDict, total=False):
    """Of a run: runtime."""

    seed: int
    """Seed. It repeats a simulation exactly. [default: randomness from the operating system]"""

    timeout: float
    """Seconds to wait for the nodes of a round. [default: 600; a day in a simulation, where
    nobody is late]"""


class OutputSettings(TypedDict, total=False):
    """Of a run: output."""

    dataset_name: str
    """Name of the data set, for the report. Public."""

    purpose: str
    """Purpose of the training, for the report. Public."""

    operator: str
    """Who is responsible for the run, for the report. Public."""


class StrategySettings(TypedDict, total=False):
    """Of a run: strategy."""

    normalized: bool
    """Only for uls, dp-fedavg, els, group. Divide by the clip norm, so that step sizes do not
    depend on it."""

    retain: int
    """Only for uls, dp-fedavg, adaptive, aup, nonprivate, aup-corrected. Most judgements of a
    user in the whole run. [default: all]"""

    sampling: Literal["poisson", "cyclic", "all"]
    """Only for uls, dp-fedavg. Who is in a round. poisson: each user by a coin of their own.
    cyclic: users / --cohort groups in turn, everybody of each, with --noise-correlation blt.
    all: everybody, in each round. [default: poisson]"""

    noise_correlation: Literal["none", "banded", "blt"]
    """Only for uls, dp-fedavg. Noise of several rounds. none: independent. banded: each round
    takes back some of the noise before it, and groups of users take turns. blt: so, too, with
    --sampling cyclic and no coins. [default: none]"""

    bands: int
    """Only for uls, dp-fedavg. --noise-correlation banded: how many rounds share noise, and
    groups take turns. [default: one of 2 to 32, by the least error]"""

    local_steps: int
    """Only for dp-fedavg. Local steps of each user. [default: 4]"""

    local_rate: float
    """Only for dp-fedavg. Step size of the local steps; with --task policy give 0.1. [default:
    1]"""

    sampling_probability: float
    """Only for els, group. Probability of each kept judgement to be in a round. [default: as
    much computing as uls with --cohort]"""

    quantile: float
    """Only for adaptive, aup. Share of users within the radius. [default: 0.15]"""

    variant: Literal["centred", "published"]
    """Only for aup. Which form of it. [default: centred]"""

    adaptation: Literal["quantile", "above-threshold"]
    """Only for aup. centred: how the radius adapts. [default: quantile]"""

    reading: Literal["to-the-letter", "as-run"]
    """Only for aup. published: Algorithm 1 as printed, or as its authors can have run it: one
    phase of all users, and exactly --cohort of them a round. [default: to-the-letter]"""

    phases: int
    """Only for aup. published: phases on disjoint halves of the users. [default: 1]"""

    schedule: Literal["constant", "theorem-4"]
    """Only for aup. published: phases, steps and radii as given, or by the paper's theorem.
    [default: constant]"""

    ridge: float
    """Only for label-moment, objective-perturbation, local-label. Ridge penalty added to the
    likelihood. [default: from noise and public features]"""

    max_norm: float
    """Only for label-moment, objective-perturbation, local-label. Largest norm of the weights.
    [default: the strategy's]"""

    calibration: Literal["analytic", "paper"]
    """Only for objective-perturbation. The accountant's noise, or the paper's. [default:
    analytic]"""

    max_votes: int
    """Only for ranking. Most votes of a voter that count; which ones is chance. [default:
    10]"""

    pairing: Literal["public", "voters"]
    """Only for ranking. Who chose what is compared. public: whoever runs the poll, each pair
    alike. voters: they, or nobody knows; counts of pairs are released, too. [default:
    public]"""

    level: Literal["user", "item"]
    """Only for local-label, exponential. user: epsilon is for all labels of a user together.
    item: for each label. (Where whole judgements are looked at: for all of a user's, or for
    each.) [default: user]"""

    estimator: Literal["debiased", "mle", "sgd", "square"]
    """Only for local-label. How the model is fitted to randomized labels. [default:
    debiased]"""

    label_cap: int
    """Only for local-label. Most labels that a user ever releases. [default: all they have]"""

    label_delta: float
    """Only for local-label. User level: the part of delta that is spent on labels."""

    label_weights: Literal["information", "equal"]
    """Only for local-label. Weight judgements by the information in their labels, or equally.
    [default: information]"""

    sgd_steps: Literal["decaying", "published"]
    """Only for local-label. sgd: decaying steps and averages, or as published. [default:
    decaying]"""

    sum_zero: bool
    """Only for local-label. Only allow weights that sum to zero."""

    epochs: int
    """Only for local-label. Passes over the data. policy: over all labels. [default: 1]"""

    batch_size: int
    """Only for local-label. Batch size of a step. policy: in labels. [default: 64]"""

    policies: str | os.PathLike[str]
    """Only for exponential. A class of policies to choose from, written by `murmuration
    policies commit`; --base is the reference."""

    judgement_cap: int
    """Only for exponential. Item level: most judgements of a user that count (the first ones).
    [default: 16]"""

    choice_rule: Literal["exponential", "permute-and-flip"]
    """Only for exponential. How a policy is drawn: exponential, by the exponential mechanism,
    or permute-and-flip, which at the same epsilon never loses more in expectation. [default:
    exponential]"""


class RunSettings(
    DataSettings,
    PrivacySettings,
    TrainingSettings,
    ModelSettings,
    RuntimeSettings,
    OutputSettings,
    StrategySettings,
    total=False,
):
    """All of them."""
