"""The best states of a frozen language model for a linear reward: layer, pooling, and form.

Settings that read users' judgements to be chosen would cost them privacy, so defaults have to be
chosen on other data than those that are trained on. Here people's judgements of any public source
are given: a fifth of the users is held out, the others train by ``uls`` and without privacy, and
the accuracy of a reward on the held-out users is measured for each way to read a text:

- the number of layers, with the model's last norm;
- the mean of its tokens' states, or the last token's;
- as they are (of about unit length, as ``--train head`` reads them); **centred** on public
  exchanges and scaled to unit length (as ``--features smollm2`` does); **whitened** as well, by the
  covariance of the package's 300 questions, half of it shrunk to a multiple of the identity; or
  centred **with hashed words** beside them, each weighted by 1/√2.

All layers are read in one pass. Nothing of this is kept on disk.

Legend: T texts, L tokens, D numbers, S seeds.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from murmuration.preference.base_names import resolve_base
from murmuration.preference.data.judgements import InputError, Judgements
from murmuration.preference.data.loading import read_judgements
from murmuration.preference.features.hashing import HashingFeatures
from murmuration.preference.features.language_states import EXCHANGES
from murmuration.preference.features.text_length import length_feature
from murmuration.preference.language.loading import load_causal
from murmuration.preference.language.tokens import TextTokens, unbroken
from murmuration.preference.linear.examples import (
    PairExamples,
    distinct_texts,
    pair_examples,
)
from murmuration.privacy.mechanisms.randomness import Randomness
from murmuration.research.reproductions.btl import Training
from murmuration.research.reproductions.entry import (
    Reproduction,
    Row,
    Rows,
    distinct,
    mean_sd,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import open_corner
from murmuration.research.reproductions.policies.reference import reference
from murmuration.sims.population.population import Population
from murmuration.sims.population.prompts import questions
from murmuration.strategies.config import RunConfig

POOLINGS = ("mean", "last")
FORMS = ("as they are", "centred", "whitened", "with hashed words")
_DELTA, _LENGTH, _LIMIT = 1e-5, 0.3, 256
_SHRUNK = 0.5
_BATCH = 8


@dataclass(frozen=True)
class Plan:
    """Sizes and settings.

    Attributes:
        layers: the layers after which states are read; those beyond a base's last are left out.
        epsilons: None is without privacy.
        seeds: of the hold-out, cohorts and noise.
        rounds, cohort: of each reward.
    """

    layers: Sequence[int] = (6, 12, 18, 24, 30)
    epsilons: Sequence[float | None] = (3.0, None)
    seeds: int = 3
    rounds: int = 200
    cohort: int = 540


@dataclass(frozen=True, eq=False)
class Table:
    """Features that were computed before, by prompt and response."""

    place: Mapping[tuple[str, str], int]
    phi_TD: np.ndarray

    uses_prompt = True

    @property
    def dimension(self) -> int:
        """D."""
        return self.phi_TD.shape[1]

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> np.ndarray:
        """Features of texts that are in the table, (T, D) float32."""
        return self.phi_TD[[self.place[pair] for pair in zip(prompts, responses, strict=True)]]

    def to_config(self) -> dict:
        """Describe it: there is nothing that others could make it from."""
        return {"kind": "table"}


def head_states(quick: bool) -> Reproduction:
    """Run a miniature of the embedded population with a tiny base, if quick.

    Raises:
        InputError: it is not quick, so that people's judgements are needed.
    """
    if not quick:
        raise InputError("head-states needs --data, a file of judgements, and --out; or --quick")
    plan = Plan((1, 2), seeds=2, rounds=20, cohort=100)
    with reference(Population().texts("train", 300)) as base:
        few = itertools.islice(Population().rows("test"), 3000)
        return compared(Judgements.from_rows(few), base, plan)


def of_people(data: Path, out: Path) -> Reproduction:
    """Compare SmolLM2's states on people's judgements; nothing is kept in ``out`` meanwhile."""
    del out
    return compared(read_judgements(str(data), "btl", "", {}), "smollm2", Plan())


def compared(judgements: Judgements, base: str, plan: Plan) -> Reproduction:
    """A row for each way to read states, at each ε: mean accuracy over seeds."""
    public = [*EXCHANGES, *((question, "") for question in questions())]
    pairs = [*public, *dict.fromkeys(zip(*distinct_texts(judgements, True)[1:3], strict=True))]
    states, layers = pooled_states(base, pairs, plan.layers)
    place = {pair: at for at, pair in enumerate(pairs)}
    length_T = length_feature([text for _, text in pairs], "bounded", _LENGTH)
    hashed_TD = HashingFeatures(length="none")([p for p, _ in pairs], [r for _, r in pairs])
    rows: list[Row] = []
    for layer in tracked(layers, "layers", len(layers)):
        for pooling in POOLINGS:
            for form in FORMS:
                phi_TD = formed(
                    states[layer, pooling], form, len(EXCHANGES), len(public), hashed_TD
                )
                phi_TD = np.column_stack([phi_TD, length_T]).astype(np.float32)
                examples = pair_examples(judgements, Table(place, phi_TD))
                for epsilon in plan.epsilons:
                    right_S = [_accuracy(examples, plan, epsilon, s) for s in range(plan.seeds)]
                    rows.append(
                        {
                            "layer": layer,
                            "pooling": pooling,
                            "form": form,
                            "epsilon": epsilon,
                            **mean_sd("accuracy", right_S),
                        }
                    )
    extra = {"users": len(judgements.user_ids), "texts": len(pairs) - len(public)}
    return Reproduction(rows, remarks(rows), extra=extra, plot=plot(rows))


def pooled_states(
    base: str, pairs: Sequence[tuple[str, str]], layers: Sequence[int]
) -> tuple[dict[tuple[int, str], np.ndarray], list[int]]:
    """Each text's pooled states by layer and pooling, (T, D), and the layers that exist.

    Args:
        base: a folder, a GGUF file or ``smollm2``.
        pairs: prompts and responses, which are read as the base's chat template writes them.
        layers: the requested ones.
    """
    tokenizer, model = load_causal(resolve_base(base))
    body: Any = model.base_model.eval().requires_grad_(False)
    there = [layer for layer in layers if layer <= body.config.num_hidden_layers]
    texts = TextTokens(tokenizer, _LIMIT)
    whole = texts.whole(*zip(*pairs, strict=True))
    with unbroken():
        ids = tokenizer(
            whole, add_special_tokens=not texts.chat, truncation=True, max_length=_LIMIT
        )["input_ids"]
    by_length = sorted(range(len(ids)), key=lambda at: len(ids[at]))
    result = {
        (layer, pooling): np.empty((len(ids), body.config.hidden_size), dtype=np.float32)
        for layer in there
        for pooling in POOLINGS
    }
    batches = [by_length[at : at + _BATCH] for at in range(0, len(ids), _BATCH)]
    for batch in tracked(batches, "texts", len(batches)):
        lengths = [len(ids[at]) for at in batch]
        ids_TL = torch.zeros(len(batch), max(lengths), dtype=torch.int64)
        for row, at in enumerate(batch):
            ids_TL[row, : lengths[row]] = torch.tensor(ids[at])
        mask_TL = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        with torch.inference_mode():
            behind = body(
                input_ids=ids_TL, attention_mask=mask_TL.long(), output_hidden_states=True,
                use_cache=False,
            ).hidden_states  # fmt: skip
            for layer in there:
                # The last is behind the norm already.
                states_TLD = behind[layer] if layer == len(behind) - 1 else body.norm(behind[layer])
                for row, at in enumerate(batch):
                    states_LD = states_TLD[row, : lengths[row]]
                    result[layer, "mean"][at] = states_LD.mean(0)
                    result[layer, "last"][at] = states_LD[-1]
    return result, there


def formed(
    states_TD: np.ndarray, form: str, exchanges: int, public: int, hashed_TD: np.ndarray
) -> np.ndarray:
    """Features made from states.

    Args:
        states_TD: of all texts; the first are ``exchanges``, then other public ones up to
            ``public``.
        form: one of `FORMS`.
        exchanges: on whose mean states are centred.
        public: by whose covariance they are whitened.
        hashed_TD: features of hashed words of the same texts.
    """
    if form == "as they are":
        return states_TD / np.sqrt(states_TD.shape[1])
    centred_TD = states_TD - states_TD[:exchanges].mean(0)
    if form == "whitened":
        covariance_DD = np.cov(states_TD[:public].T.astype(np.float64))
        spread = np.trace(covariance_DD) / len(covariance_DD)
        covariance_DD = (1 - _SHRUNK) * covariance_DD + _SHRUNK * spread * np.eye(
            len(covariance_DD)
        )
        values_D, vectors_DD = np.linalg.eigh(covariance_DD)
        centred_TD = centred_TD @ (vectors_DD / np.sqrt(values_D)) @ vectors_DD.T
    unit_TD = centred_TD / np.maximum(np.linalg.norm(centred_TD, axis=1, keepdims=True), 1e-12)
    if form == "with hashed words":
        return np.column_stack([unit_TD, hashed_TD]) / np.sqrt(2.0)
    return unit_TD


def _accuracy(examples: PairExamples, plan: Plan, epsilon: float | None, seed: int) -> float:
    """The accuracy of a reward on a fifth of the users, who were held out."""
    users = len(examples.counts_U)
    held_U = np.random.default_rng([seed, 35]).permutation(users) < users / 5
    config = RunConfig(
        strategy="uls" if epsilon else "nonprivate",
        epsilon=epsilon or 1.0,
        delta=_DELTA,
        rounds=plan.rounds,
        cohort=min(plan.cohort, users // 2),
        seed=seed,
        test="other users",
    )
    training = Training(examples.select(np.flatnonzero(~held_U)), Randomness(seed))
    strategy, _ = training.run(config)
    held = examples.select(np.flatnonzero(held_U))
    return held.accuracy(strategy.optimizer.result_D).pooled


def remarks(rows: Rows) -> list[str]:
    """Sentences on the best way at each ε, beside the ways that are defaults, if any."""
    result = []
    for epsilon in dict.fromkeys(row["epsilon"] for row in rows):
        same = [row for row in rows if row["epsilon"] == epsilon]
        best = max(same, key=lambda row: row["accuracy_mean"])
        near = [row for row in same if row["accuracy_mean"] >= best["accuracy_mean"] - 0.01]
        privacy = "without privacy" if epsilon is None else f"at ε = {epsilon:g}"
        result.append(
            f"Best {privacy}: layer {best['layer']}, {best['pooling']}, {best['form']}, "
            f"{best['accuracy_mean']:.1%} (the highest of {len(same)}, so it flatters itself); "
            f"{len(near)} ways are within a point of it."
        )
    return result


def plot(rows: Rows) -> Figure:
    """A plot of accuracy against the layer, a panel for each ε, a line for each pooling and
    form.
    """
    epsilons = list(dict.fromkeys(row["epsilon"] for row in rows))
    figure = Figure(figsize=(4.2 * len(epsilons), 3.6), layout="constrained")
    panels = figure.subplots(1, len(epsilons), sharey=True, squeeze=False)[0]
    for axes, epsilon in zip(panels, epsilons, strict=True):
        of_panel = [row for row in rows if row["epsilon"] == epsilon]
        for number, form in enumerate(distinct(rows, "form")):
            for pooling, dashes in zip(POOLINGS, ("-", ":"), strict=True):
                same = where(of_panel, form=form, pooling=pooling)
                axes.plot(
                    [row["layer"] for row in same],
                    [100 * row["accuracy_mean"] for row in same],
                    dashes,
                    color=f"C{number}",
                    marker="o",
                    ms=3,
                    label=f"{form}, {pooling}",
                )
        axes.set(title="no privacy" if epsilon is None else f"ε = {epsilon:g}", xlabel="layers")
        open_corner(axes)
    panels[0].set_ylabel("right about held-out people, %")
    panels[-1].legend(fontsize=7)
    return figure
