"""The table of settings that have no meaning together, across concerns.

Those about one strategy's own settings stand in its file (``Strategy.rules``); those about how the
data are declared, in ``preference.data.schema``.
"""

from murmuration.preference.data.public_names import LENGTH
from murmuration.preference.features.strengths import text_features
from murmuration.preference.policy_losses import (
    CLIPPED_LOSSES,
    DEFAULT,
    PAIR_LOSSES,
    POLICY_LOSSES,
    PolicyObjective,
    objective,
)
from murmuration.privacy.adjacency import Adjacency
from murmuration.privacy.theorems import Mechanism
from murmuration.strategies.settings.declaration import about, also_taken, declared, option
from murmuration.strategies.settings.rule import Rule
from murmuration.strategies.settings.run import Settings
from murmuration.strategies.spec import Strategy


def _changed(run: Settings, name: str) -> bool:
    return getattr(run, name) != getattr(Settings, name)


def _hashes(run: Settings) -> bool:
    """True where features are hashes of texts: no model was trained before."""
    _, texts = text_features(run.features)
    named = run.base or run.start not in ("", LENGTH)
    return not named and texts.partition(":")[0] in ("hashing", "")


def _loss(run: Settings) -> PolicyObjective:
    return objective(run.loss or DEFAULT)


def _fits_policy(run: Settings, strategy: Strategy) -> bool:
    """True where a policy is trained, and not chosen."""
    return run.task == "policy" and strategy.trains


def _of_a_language_model(name: str) -> Rule:
    return Rule(
        lambda run, strategy: not run.base and _changed(run, name),
        f"{option(name)} is about a language model",
        ({"base": "DIR"}, {name: None}),
    )


def _of_a_model(name: str, value: str = "") -> Rule:
    return Rule(
        lambda run, strategy: _hashes(run) and getattr(run, name) == (value or True),
        f"{option(name)} {value}".strip() + " is about a language model or an encoder",
        ({"base": "DIR"}, {"features": "minilm"}, {name: None}),
    )


def _of_policies(name: str) -> Rule:
    return Rule(
        lambda run, strategy: run.task != "policy" and getattr(run, name),
        f"{option(name)} is about --task policy",
        ({name: None},),
    )


def _of_steps(name: str) -> Rule:
    def broken(run: Settings, strategy: Strategy) -> bool:
        of_a_fit = name == "learning_rate" and run.task == "policy"
        taken = of_a_fit or name in also_taken(strategy.settings)
        return bool(strategy.rounds and getattr(run, name)) and not taken

    return Rule(
        broken,
        f"{option(name)} has no meaning for --strategy {{strategy}}, which solves for the model "
        "from all judgements at once",
        ({name: None},),
    )


_SETTINGS = declared(Settings)
_POLICY = ("loss", "beta", "r_max")
_DATA = (
    *(
        _of_a_language_model(each.name)
        for each in _SETTINGS
        if about(each).base and each.name not in _POLICY
    ),
    _of_a_model("base_privacy", "public"),
    _of_a_model("disjoint"),
    Rule(
        lambda run, strategy: (
            run.items and not strategy.features and not text_features(run.features)[0]
        ),
        "--items is the list of --features strengths, or of a board",
        ({"features": "strengths"}, {"items": None}),
    ),
    Rule(
        lambda run, strategy: run.disjoint and not run.population,
        "--disjoint is about a population",
        ({"population": "NAME"}, {"disjoint": None}),
    ),
    Rule(
        lambda run, strategy: run.heldout_epsilon > run.epsilon,
        "--heldout-epsilon is a part of --epsilon {epsilon:g}; got {heldout_epsilon:g}",
        ({"heldout_epsilon": None},),
    ),
    Rule(
        lambda run, strategy: run.heldout_epsilon and run.test,
        "--heldout-epsilon is about users held out, and --test holds out nobody",
        ({"test": None}, {"heldout_epsilon": None}),
    ),
)
_TASKS = (
    *map(_of_policies, _POLICY),
    Rule(
        lambda run, strategy: run.task != "reward" and not run.base,
        "--task {task} trains a language model",
        ({"base": "DIR"}, {"task": None}),
    ),
    Rule(
        lambda run, strategy: run.task != "reward" and run.train == "head",
        "--task {task} has no head of its own to train",
        ({"train": "lora"}, {"train": "full"}),
    ),
    Rule(
        lambda run, strategy: (
            run.task == "text"
            and any(_changed(run, name) for name in ("kind", "responses", "labels"))
        ),
        "--kind, --responses and --labels are about judgements, and --task text reads none",
        ({"kind": None, "model": None, "responses": None, "labels": None},),
    ),
    Rule(
        lambda run, strategy: run.task not in ("reward", "policy") and run.model != "btl",
        "--model {model} is a preference model, and --task {task} has none to model",
        ({"model": None},),
    ),
    Rule(
        lambda run, strategy: (
            strategy.rounds and run.task == "policy" and not strategy.fits_policies
        ),
        "--strategy {strategy} solves for a linear head, and --task policy has none",
        ({"strategy": "uls"},),
    ),
    Rule(
        lambda run, strategy: strategy.rounds and run.task not in ("reward", "policy"),
        "--strategy {strategy} learns from labels, and takes no steps as --task {task} does",
        ({"strategy": "uls", "adjacency": None},),
    ),
    Rule(
        lambda run, strategy: (
            run.task not in ("reward", "policy") and run.adjacency == Adjacency.REPLACE_LABELS
        ),
        "--adjacency replace-labels: --task {task} looks at no label, so noise would protect "
        "nothing; protect what people wrote",
        tuple({"adjacency": each.value} for each in Adjacency if each != Adjacency.REPLACE_LABELS),
    ),
)
_POLICIES = (
    Rule(
        lambda run, strategy: _fits_policy(run, strategy) and run.r_max and not _loss(run).clips,
        "--r-max: --loss does not clip",
        ({"r_max": None}, *({"loss": name} for name in CLIPPED_LOSSES)),
    ),
    Rule(
        lambda run, strategy: (
            _fits_policy(run, strategy)
            and _loss(run).pair_loss
            and (run.kind != "pairs" or run.model != "btl")
        ),
        "--loss {loss} is about pairs, without a --model",
        tuple({"loss": name} for name in POLICY_LOSSES if name not in PAIR_LOSSES),
    ),
)
_STARTS = (
    Rule(
        lambda run, strategy: run.start and (run.base or run.task != "reward" or strategy.features),
        "--start is for a linear reward on --features",
        ({"start": None},),
    ),
    Rule(
        lambda run, strategy: run.start == LENGTH and run.length == "none",
        "--start length needs a feature that counts the length, and --length none has none",
        ({"length": None}, {"start": None}),
    ),
)
_SOLVED = (
    Rule(
        lambda run, strategy: (
            strategy.rounds and run.base and run.train != "head" and run.task != "policy"
        ),
        "--strategy {strategy} solves for a linear head",
        ({"train": "head"},),
    ),
    Rule(
        lambda run, strategy: strategy.rounds and run.rounds not in strategy.rounds,
        "--strategy {strategy} solves for the model, in fewer --rounds than {rounds}",
        ({"rounds": None},),
    ),
    *(_of_steps(each.name) for each in _SETTINGS if about(each).steps),
)
_THUMBS = (
    Rule(
        lambda run, strategy: run.kind == "thumbs" and run.task != "reward",
        "--kind thumbs is for a reward; without it pairs are made of thumbs",
        ({"kind": None, "model": None},),
    ),
    Rule(
        lambda run, strategy: run.kind == "thumbs" and run.base and run.train != "head",
        "--kind thumbs has an offset of each user's, which is found for a linear head only; "
        "without it pairs are made of thumbs",
        ({"train": "head"}, {"kind": None, "model": None}),
    ),
    Rule(
        lambda run, strategy: run.kind == "thumbs" and not strategy.averages_users,
        "--kind thumbs has an offset of each user's, which is found from all their thumbs "
        "together, and --strategy {strategy} takes judgements one by one",
        ({"strategy": "uls"}, {"kind": None, "model": None}),
    ),
    Rule(
        lambda run, strategy: run.kind == "thumbs" and run.shared_passes,
        "--user-passes shared computes several users at once, and --kind thumbs user by user",
        ({"user_passes": None}, {"kind": None, "model": None}),
    ),
)
_NOISE = (
    Rule(
        lambda run, strategy: run.honest_nodes and run.noise != "distributed",
        "--honest-nodes is the number of shares of --noise distributed",
        ({"honest_nodes": None},),
    ),
    Rule(
        lambda run, strategy: (
            run.noise in ("discrete", "distributed")
            and not strategy.adds(Mechanism.DISCRETE_GAUSSIAN, run.own)
        ),
        "--noise {noise} is not proven for --strategy {strategy} with these settings",
        ({"noise": None, "honest_nodes": None},),
    ),
    Rule(
        lambda run, strategy: run.noise in ("discrete", "distributed") and run.seed >= 0,
        "--noise {noise} comes from the operating system and cannot be repeated",
        ({"seed": None}, {"noise": "gaussian", "honest_nodes": None}),
    ),
    Rule(
        lambda run, strategy: run.noise == "distributed" and not run.secure_aggregation,
        "--noise distributed is added by the nodes, and hides nothing if their sums arrive "
        "without masks",
        ({"secure_aggregation": True},),
    ),
    Rule(
        lambda run, strategy: (
            run.noise == "distributed" and not strategy.adds(Mechanism.SHARES, run.own)
        ),
        "--noise distributed is not for --strategy {strategy} with these settings, where the "
        "server is told exact numbers",
        ({"noise": "discrete", "honest_nodes": None},),
    ),
    Rule(
        lambda run, strategy: run.noise == "distributed" and not run.test and run.heldout,
        "--noise distributed: figures of users who are held out would be summed exactly before "
        "the server adds noise",
        ({"test": "FILE"}, {"heldout": 0.0}),
    ),
    Rule(
        lambda run, strategy: run.secure_aggregation and not strategy.masks(run.own),
        "--secure-aggregation is not for --strategy {strategy} with these settings, where sums are "
        "on no grid",
        ({"strategy": "uls"},),
    ),
    Rule(
        lambda run, strategy: run.secure_aggregation and run.adjacency == Adjacency.ADD_REMOVE,
        "--secure-aggregation shows how many nodes take part, which add-remove keeps private; "
        "zero-out has the same epsilon",
        ({"adjacency": "zero-out"},),
    ),
)
#: In the order in which they are checked.
RULES = (*_TASKS, *_DATA, *_POLICIES, *_STARTS, *_SOLVED, *_THUMBS, *_NOISE)
