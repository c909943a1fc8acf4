"""Training on labels that leave their users randomized, from settings."""

import json

import numpy as np

from preference.features import feature_map
from preference.judgements import InputError
from preference.models import preference_model
from privacy.adjacency import Adjacency
from privacy.ledger import Ledger
from privacy.randomized_response import LabelPromise
from server.config import RunConfig
from server.setting import Built, Setting
from strategies.local_label import Estimate, LocalLabel, LocalLabelPlan
from strategies.public_items import PublicItems
from strategies.solved import SolvedModel

#: Of a label on its way: its item, the answer, and how many could have been given.
_LABEL_BYTES = 8 + 1 + 1
_HOW = {
    "debiased": "the log loss, corrected so that coins cancel on average, was minimised",
    "mle": "the likelihood of what was told was maximised",
    "square": "the square loss, corrected so that coins cancel on average, was minimised",
    "sgd": "each judgement was used once, by a gradient step corrected for the coins",
}


def label_promise(config: RunConfig) -> LabelPromise:
    """What users are promised for their labels; InputError if it cannot be."""
    try:
        return LabelPromise(
            epsilon=config.epsilon,
            level="item" if config.level == "item" else "user",
            cap=config.label_cap,
            delta=config.label_delta,
        )
    except ValueError as error:
        raise InputError(f"--epsilon, --level, --label-cap, --label-delta: {error}") from None


def build_local_label(setting: Setting, ledger: Ledger) -> Built:
    """One round of randomized labels, and a fit to public items."""
    config, participants = setting.config, setting.participants
    promise = label_promise(config)
    items = PublicItems.ask(
        setting.grid,
        participants.registry,
        participants.train,
        schema=setting.config.schema,
        timeout=config.timeout,
    )
    if items.schema.kind == "ranking":
        raise InputError(
            "--strategy local-label takes pairs or the best of several: a whole ranking is no "
            "single label"
        )
    examples = items.examples(feature_map(json.loads(setting.features)))
    preference_model(config.model, examples.kind, examples.width)  # refuses a model of pairs
    most = int(np.diff(items.start_S).max())
    estimate = Estimate(
        estimator=config.estimator or "debiased",  # type: ignore[arg-type]
        model=config.model,
        ball=config.ball,
        ridge=config.ridge,
        weights=config.label_weights or "information",  # type: ignore[arg-type]
        sum_zero=config.sum_zero,
        steps=config.sgd_steps or "decaying",  # type: ignore[arg-type]
    )
    plan = LocalLabelPlan(
        promise,
        users=setting.users,
        most=min(most, promise.cap or most),
        adjacency=Adjacency(config.adjacency),
        estimate=estimate,
    )
    labels = float(np.minimum(np.diff(items.start_S), promise.cap or most).sum())
    return Built(
        strategy=LocalLabel(
            plan, ledger, items, examples, **setting.arguments(SolvedModel(setting.dimension))
        ),
        charges=plan.charges,
        noise_multiplier=0.0,
        clip_norm=None,
        group_size=plan.most,
        noise=0.0,
        guarantee=_guarantee(promise),
        gradients=setting.users,
        bytes_per_user=(items.bytes + labels * _LABEL_BYTES) / len(participants.train) + 16,
        account=(
            "What was shown to each user is public and was sent to the server. Every user's own "
            f"node told their labels through randomized response, once, with {promise}; flip "
            "rates came with the labels. From these and public features "
            f"{_HOW[estimate.estimator]}. Epsilon was spent before labels left their users; "
            "what the server did with them costs nothing."
        ),
        level=promise.level,
    )


def _guarantee(promise: LabelPromise) -> str:
    sentence = Adjacency.REPLACE_LABELS.sentence
    local = (
        "The server is not trusted: true labels of those trained on never leave their own nodes."
    )
    if promise.level == "item":
        return (
            f"Item-level local ({promise.epsilon:g}, 0)-differential privacy of labels: each "
            "judgement's label is protected by itself, and a user's labels add up. "
            "Neighbouring data sets differ in one label; prompts, responses and the number of "
            f"judgements are public. {local}"
        )
    return (
        f"User-level local ({promise.epsilon:g}, {promise.delta:g})-differential privacy of all "
        f"labels of a user together. {sentence} {local}"
    )
