"""Figures 3 to 5, 14 and 15 of Charles et al. 2024: a language model from sampled texts or users.

Source: "U", Section 4 and Appendices F and J.1. The paper fine-tunes a model of 350 M weights on
Stack Overflow and CC-News for 10,000 or 2,000 steps, at three compute budgets; step size and clip
norm are tuned, G_ELS is the median user's number of texts, G_ULS by its Algorithm 3. Here:

- The base is a small Llama of ours, trained on public text that is mostly about money. Users write
  about home and family. Of the base the last layer's `down_proj` is trained; all below is computed
  once.
- Users have 16 texts of 16 tokens each. *Diverse* users write on any topic, and either side of it;
  *uniform* ones have a topic and a side each. So the median is 16, and G_ELS = 16.
- Compute is the expected number of texts whose gradient is taken in a round, the same for both.
  Steps are plain, constant, and in units of the clip norm (De et al. 2022, as the paper has it).
- Cohorts are Poisson samples, as accountants assume; the paper shuffles. δ = n^-1.1 of n texts.
- Step size and clip norm are **the best of one grid for each** algorithm in each setting, by the
  loss of other people, when training on yet others: as many trials for both. Clip norms are
  multiples of the median length of gradients of other people, by which Algorithm 3 chooses G_ULS,
  too. None of that is charged, as in the paper.

Figure 5 asks what more users would bring, *in the accounting alone*: so does `factor` here.

The claims, judged by Student's 95 % intervals over seeds of paired differences, a rule that was
fixed before the full run; *undecided* where the interval holds zero:

1. users diverse: ULS's loss is at most ELS's, in each setting;
2. more compute lowers ULS's loss by more than ELS's (Figures 14 and 15);
3. more users in the accounting lower ELS's loss by more than ULS's (Figure 5).

Legend: U users, J texts of each, S drawn ones, G texts of a user, L tokens, H width, F activations.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch.nn.functional import cross_entropy

from murmuration.planning.estimate_and_double import Point, Space, estimate_and_double
from murmuration.preference.language.likelihood import load_next_token
from murmuration.research.reproductions.alignment.claims import mean_interval
from murmuration.research.reproductions.entry import (
    Row,
    Rows,
    distinct,
    in_processes,
    tracked,
    where,
)
from murmuration.research.reproductions.plots import (
    legend_below,
    log_ticks,
    open_corner,
    with_intervals,
)
from murmuration.research.reproductions.uls.accounting import noise_multiplier
from murmuration.sims.population.tiny_language_model import TinyBase, build
from murmuration.sims.population.topics import LIVING_TOPICS, MONEY_TOPICS, Topic
from murmuration.sims.population.wording import MAX_DRAWS, WORD, Draws, exchange

ELS, ULS, BASE, NONE = "ELS", "ULS", "base", "no privacy"
DIVERSE, UNIFORM = "diverse", "uniform"
SHAPE = TinyBase(
    kind="llama", width=48, layers=2, heads=4, context=128, epochs=1, batch=16, rate=4e-3
)
#: ε, and by how much the users are multiplied in the accounting.
PRIVACY = ((1.0, 1), (4.0, 1), (16.0, 1), (4.0, 100))
COMPUTES = (16, 64, 256)
#: In units of the clip norm; and of the median length of gradients.
RATES, CLIPS = (0.05, 0.2, 0.8, 3.2), (0.06, 0.25)
_START, _END = 16, "[END]"
_TOKENS = 1024  # whose numbers of all words fit into a cache
_TUNED_ON = 1000  # the seed of whom steps are tuned on


@dataclass(frozen=True)
class Sizes:
    """Numbers of users, also of those who tune and test; of texts, tokens and rounds.

    ``exchanges`` are about money, of what the base is trained on; a tenth more is not.
    """

    users: int = 1000
    each: int = 16
    tokens: int = 16
    rounds: int = 40
    others: int = 100
    exchanges: int = 4000


@dataclass(frozen=True)
class Setting:
    """One point of the figures, for one algorithm; ε = 0 stands for no privacy."""

    algorithm: str
    diversity: str
    compute: int
    epsilon: float
    factor: int


def written(users: int, sizes: Sizes, diversity: str, seed: int) -> list[list[str]]:
    """Own texts of ``users`` users about home and family, (U, J), each long enough."""
    generator = np.random.default_rng([2024, seed, diversity == DIVERSE])

    def one(topics: Sequence[Topic], daring: bool) -> str:
        while True:
            drawn = Draws(generator.random(MAX_DRAWS).tolist())
            _, cautious, bold = exchange(topics, drawn)
            text = (bold if daring else cautious).text
            if len(WORD.findall(text)) >= sizes.tokens:
                return text

    result = []
    for _ in range(users):
        own, side = LIVING_TOPICS[generator.integers(len(LIVING_TOPICS))], generator.random() < 0.5
        result.append(
            [one((own,), side) for _ in range(sizes.each)]
            if diversity == UNIFORM
            else [one(LIVING_TOPICS, generator.random() < 0.5) for _ in range(sizes.each)]
        )
    return result


def public_texts(exchanges: int) -> Iterator[tuple[str, str, str]]:
    """Yield the texts that a base is trained on, each after the token that ends a text."""
    generator = np.random.default_rng(2024)
    for topics, count in ((MONEY_TOPICS, exchanges), (LIVING_TOPICS, exchanges // 10)):
        for _ in range(count):
            drawn = Draws(generator.random(MAX_DRAWS).tolist())
            _, cautious, daring = exchange(topics, drawn)
            yield _END, cautious.text, daring.text


@dataclass(frozen=True, eq=False)
class Texts:
    """Inputs of the last layer of texts, (U, J, L, ·), and which token comes next."""

    x_UJLH: torch.Tensor
    a_UJLF: torch.Tensor
    next_UJL: torch.Tensor


class Base:
    """A small language model of which the last layer's `down_proj` is trained."""

    def __init__(self, folder: str | Path) -> None:
        network, texts = load_next_token(folder)
        self._network, self._tokenizer = network.eval(), texts.tokenizer
        self._layer, self._norm = network.model.layers[-1], network.model.norm
        self._said_VH = network.get_output_embeddings().weight.detach()
        self.weight_HF = self._layer.mlp.down_proj.weight.detach().clone()
        network.requires_grad_(False)

    def texts(self, texts_UJ: Sequence[Sequence[str]], tokens: int) -> Texts:
        """The first ``tokens`` tokens of texts, each after the token that ends a text; ValueError
        for a shorter text.
        """
        ids_TL = torch.tensor([self._ids(text, tokens) for row in texts_UJ for text in row])
        got: dict[str, list[torch.Tensor]] = {"x": [], "a": []}

        def keep(name: str) -> Callable[[Any, tuple[torch.Tensor, ...]], None]:
            return lambda _, given: got[name].append(given[0])

        hooks = [
            self._layer.post_attention_layernorm.register_forward_pre_hook(keep("x")),
            self._layer.mlp.down_proj.register_forward_pre_hook(keep("a")),
        ]
        with torch.no_grad():
            for part_TL in ids_TL[:, :-1].split(1024):
                self._network.model(input_ids=part_TL)
        for hook in hooks:
            hook.remove()
        shape = (len(texts_UJ), -1, tokens)
        x_UJLH, a_UJLF = (
            torch.cat(parts).view(*shape, parts[0].shape[-1]) for parts in got.values()
        )
        return Texts(x_UJLH, a_UJLF, ids_TL[:, 1:].reshape(shape))

    def _ids(self, text: str, tokens: int) -> list[int]:
        words = WORD.findall(text.lower())[:tokens]
        if len(words) < tokens:
            raise ValueError(f"a text of {len(words)} tokens, where {tokens} are needed")
        return self._tokenizer.convert_tokens_to_ids([_END, *words])

    def _said(
        self, weight_HF: torch.Tensor, x_QH: torch.Tensor, a_QF: torch.Tensor
    ) -> torch.Tensor:
        return self._norm(x_QH + a_QF @ weight_HF.T) @ self._said_VH.T

    def loss(self, weight_HF: torch.Tensor, texts: Texts) -> float:
        """The mean cross-entropy per token, in nats."""
        parts = (each.flatten(0, 2).split(_TOKENS) for each in (texts.x_UJLH, texts.a_UJLF))
        next_Q, total = texts.next_UJL.flatten(), 0.0
        with torch.no_grad():
            for x_QH, a_QF, some_Q in zip(*parts, next_Q.split(_TOKENS), strict=True):
                said_QV = self._said(weight_HF, x_QH, a_QF)
                total += float(cross_entropy(said_QV, some_Q, reduction="sum"))
        return total / len(next_Q)

    def gradients(
        self, weight_HF: torch.Tensor, texts: Texts, user_S: torch.Tensor, text_SG: torch.Tensor
    ) -> torch.Tensor:
        """The gradient of the mean loss of G texts of each sampled user, (S, H, F)."""
        at = user_S[:, None], text_SG
        x_SQH, a_SQF, next_SQ = (
            each[at].flatten(1, 2) for each in (texts.x_UJLH, texts.a_UJLF, texts.next_UJL)
        )
        y_SQH = (x_SQH + a_SQF @ weight_HF.T).requires_grad_()
        said_SQV = self._norm(y_SQH) @ self._said_VH.T
        loss = cross_entropy(said_SQV.flatten(0, 1), next_SQ.flatten(), reduction="sum")
        (back_SQH,) = torch.autograd.grad(loss / max(1, next_SQ.shape[1]), y_SQH)
        return back_SQH.transpose(1, 2) @ a_SQF


@dataclass(frozen=True)
class Plan:
    """An algorithm's use of its compute.

    Attributes:
        group_size: texts of a sampled user; None: texts are sampled, whatever their user.
        drawn: the expected number of users or texts sampled.
        sigma: noise in units of the clip norm.
        length: the median length of their gradients, of other people.
    """

    group_size: int | None
    drawn: float
    sigma: float
    length: float


def lengths(base: Base, others: Texts) -> dict[int, float]:
    """The median length of averaged gradients of other people, by powers of two of G."""
    users, each = others.next_UJL.shape[:2]
    result = {}
    for group in (2**k for k in range(each.bit_length())):
        text_SG = torch.arange(group).expand(users, group)
        grads_SHF = base.gradients(base.weight_HF, others, torch.arange(users), text_SG)
        result[group] = float(grads_SHF.flatten(1).norm(dim=1).median())
    return result


def planned(setting: Setting, sizes: Sizes, length: Mapping[int, float]) -> Plan:
    """The plan: for ELS, G is the number of all a user's examples; for ULS, G is by
    Estimate-and-Double.
    """
    users = sizes.users * setting.factor
    budget = {"rounds": sizes.rounds, "delta": (users * sizes.each) ** -1.1}
    if setting.algorithm == ELS:
        probability = setting.compute / (users * sizes.each)
        sigma = noise_multiplier(setting.epsilon, sizes.each, probability, **budget)
        return Plan(None, setting.compute, sigma, length[1])

    def of_cohort(cohort: int) -> float:
        return noise_multiplier(setting.epsilon, 1, cohort / users, **budget)

    space = Space(Point(1, _START), setting.compute, sizes.users)
    steps = estimate_and_double(space, lambda group: length.get(group, math.inf), of_cohort)
    point = steps[-1].to if steps else space.start
    return Plan(point.group_size, point.cohort, of_cohort(point.cohort), length[point.group_size])


def trained(
    base: Base, texts: Texts, plan: Plan, rounds: int, seed: int, rate: float, clip: float
) -> torch.Tensor:
    """The weights after the last round; the step is in units of the clip norm, and that in units of
    the plan's length.
    """
    users, each, tokens = texts.next_UJL.shape
    generator = torch.Generator().manual_seed(seed)
    weight_HF = base.weight_HF.clone()
    bound = clip * plan.length
    for _ in range(rounds):
        among = users if plan.group_size else users * each
        drawn_S = (torch.rand(among, generator=generator) < plan.drawn / among).nonzero()[:, 0]
        if plan.group_size:
            order_SJ = torch.rand(len(drawn_S), each, generator=generator).argsort(dim=1)
            user_S, text_SG = drawn_S, order_SJ[:, : plan.group_size]
        else:
            user_S, text_SG = drawn_S // each, (drawn_S % each)[:, None]
        sum_HF = plan.sigma * torch.randn(*weight_HF.shape, generator=generator)
        together = max(1, _TOKENS // (tokens * text_SG.shape[1]))
        for part in torch.arange(len(drawn_S)).split(together):
            grads_SHF = base.gradients(weight_HF, texts, user_S[part], text_SG[part])
            length_S = grads_SHF.flatten(1).norm(dim=1)
            sum_HF += torch.einsum("shf,s->hf", grads_SHF, 1.0 / length_S.clamp_min(bound))
        weight_HF -= rate / plan.drawn * sum_HF
    return weight_HF


@dataclass(frozen=True, eq=False)
class People:
    """Texts of those who are trained on, and of others."""

    trained: Texts
    others: Texts

    @classmethod
    def draw(cls, base: Base, sizes: Sizes, diversity: str, seed: int) -> "People":
        """Draw people; those of two seeds are disjoint."""
        return cls(
            *(
                base.texts(written(users, sizes, diversity, 2 * seed + place), sizes.tokens)
                for place, users in enumerate((sizes.users, sizes.others))
            )
        )


def tuned(
    base: Base, people: People, plan: Plan, sizes: Sizes, rates: Sequence[float]
) -> tuple[float, float]:
    """The step and the clip norm of the grid with the least loss on other users."""

    def loss(both: tuple[float, float]) -> float:
        result = base.loss(
            trained(base, people.trained, plan, sizes.rounds, _TUNED_ON, *both), people.others
        )
        return result if math.isfinite(result) else math.inf

    return min(itertools.product(rates, CLIPS), key=loss)


def language_model(
    quick: bool = False,
    *,
    sizes: Sizes = Sizes(),
    computes: Sequence[int] = COMPUTES,
    privacy: Sequence[tuple[float, int]] = PRIVACY,
    rates: Sequence[float] = RATES,
    seeds: int = 5,
) -> list[dict[str, Any]]:
    """Rows ``diversity, algorithm, compute, epsilon, factor, group_size, drawn, sigma, rate, clip,
    loss_mean, loss_interval``, those of the base and without privacy among them; then ``claim,
    diversity, compute, epsilon, factor, difference, interval``. ``quick``: two seeds of few users,
    the ends of the privacy and of the compute."""
    if quick:
        sizes, seeds = Sizes(users=200, rounds=10, others=40, exchanges=400), 2
        computes, privacy, rates = (16, 64), privacy[1::2], rates[1::2]
    rows: list[dict[str, Any]] = []
    for diversity in (DIVERSE, UNIFORM):
        settings = [
            *(Setting(BASE, diversity, 0, 0.0, 1), Setting(NONE, diversity, computes[-1], 0.0, 1)),
            *(
                Setting(algorithm, diversity, compute, epsilon, factor)
                for compute, (epsilon, factor) in itertools.product(computes, privacy)
                for algorithm in (ELS, ULS)
            ),
        ]
        tasks = [(setting, sizes, tuple(rates), seeds) for setting in settings]
        # In this process, so that the base is trained, and texts are read, once.
        results = tracked(in_processes(measured, tasks, workers=1), diversity, len(tasks))
        losses: dict[Setting, list[float]] = {}
        for setting, (plan, of_seeds) in zip(settings, results, strict=True):
            losses[setting] = of_seeds
            row = {**asdict(setting), "epsilon": setting.epsilon or None, **plan}
            rows.append(row | mean_interval("loss", of_seeds))
        rows += _claims(losses, diversity)
        _people.cache_clear()
    _base.cache_clear()
    return rows


@lru_cache(maxsize=1)
def _base(exchanges: int) -> Base:
    with TemporaryDirectory(prefix="murmuration-uls-lm-") as folder:
        build(folder, SHAPE, public_texts(exchanges))
        return Base(folder)


@lru_cache(maxsize=1)
def _people(sizes: Sizes, diversity: str, seeds: int) -> tuple[dict[int, float], list[People]]:
    """Lengths of gradients; then those whom steps are tuned on, and those of each seed."""
    base = _base(sizes.exchanges)
    people = [People.draw(base, sizes, diversity, seed) for seed in (_TUNED_ON, *range(seeds))]
    return lengths(base, people[0].others), people


def measured(
    task: tuple[Setting, Sizes, tuple[float, ...], int],
) -> tuple[dict[str, Any], list[float]]:
    """The plan with its step and clip norm, and the losses of the seeds, for a setting, sizes, the
    steps that are tried and a number of seeds.
    """
    setting, sizes, rates, seeds = task
    base = _base(sizes.exchanges)
    length, (tuning, *people) = _people(sizes, setting.diversity, seeds)
    if setting.algorithm == BASE:
        return {}, [base.loss(base.weight_HF, one.others) for one in people]
    if setting.algorithm == NONE:
        plan = Plan(None, setting.compute, 0.0, length[1])
    else:
        plan = planned(setting, sizes, length)
    rate, clip = tuned(base, tuning, plan, sizes, rates)
    losses = [
        base.loss(trained(base, one.trained, plan, sizes.rounds, seed, rate, clip), one.others)
        for seed, one in enumerate(people)
    ]
    return asdict(plan) | {"rate": rate, "clip": clip}, losses


Losses = Mapping[Setting, Sequence[float]]
BETTER, MORE_COMPUTE, MORE_USERS = (
    "ULS has less loss",
    "compute brings ULS more",
    "more users bring ELS more",
)


def _claims(losses: Losses, diversity: str) -> Iterator[dict[str, Any]]:
    """The claims' paired differences, which the paper says are positive."""
    computes = sorted({one.compute for one in losses if one.algorithm == ULS})
    privacy = list(dict.fromkeys((s.epsilon, s.factor) for s in losses if s.algorithm == ULS))

    def cell(algorithm: str, compute: int, epsilon: float, factor: int) -> np.ndarray:
        return np.array(losses[Setting(algorithm, diversity, compute, epsilon, factor)])

    def row(claim: str, compute: int | None, pair: tuple[float, int], values: np.ndarray) -> Any:
        where_ = {"compute": compute, "epsilon": pair[0], "factor": pair[1]}
        named = mean_interval("difference", values.tolist())
        return {"claim": claim, "diversity": diversity, **where_, **named}

    for compute, pair in itertools.product(computes, privacy):
        yield row(BETTER, compute, pair, cell(ELS, compute, *pair) - cell(ULS, compute, *pair))
    least, most = computes[0], computes[-1]
    for pair in privacy:
        gains = {name: cell(name, least, *pair) - cell(name, most, *pair) for name in (ELS, ULS)}
        yield row(MORE_COMPUTE, None, pair, gains[ULS] - gains[ELS])
    for epsilon, factor in privacy:
        if factor > 1 and (epsilon, 1) in privacy:
            for compute in computes:
                gains = {
                    name: cell(name, compute, epsilon, 1) - cell(name, compute, epsilon, factor)
                    for name in (ELS, ULS)
                }
                yield row(MORE_USERS, compute, (epsilon, factor), gains[ELS] - gains[ULS])


def verdict(row: Row) -> str:
    """The verdict by the rule."""
    mean, wide = row["difference_mean"], row["difference_interval"]
    if wide is None or abs(mean) <= wide:
        return "undecided"
    return "agrees" if mean > 0 else "DIFFERS"


def remarks(rows: Rows) -> list[str]:
    """Sentences with the verdicts of each claim, and the effect of training."""
    result = []
    for diversity in distinct(rows, "diversity"):
        here = where(rows, diversity=diversity)
        (base,), (clean,) = where(here, algorithm=BASE), where(here, algorithm=NONE)
        result.append(
            f"Users {diversity}: loss of the base {base['loss_mean']:.3f}, without privacy "
            f"{clean['loss_mean']:.3f} (nats a token)."
        )
        for claim in distinct(here, "claim"):
            same = where(here, claim=claim)
            counts = ", ".join(
                f"{sum(verdict(row) == name for row in same)} {name}"
                for name in ("agrees", "undecided", "DIFFERS")
            )
            result.append(f"Users {diversity}, {claim}: of {len(same)} {counts}.")
            result += [
                f"  {_point(row)}: {row['difference_mean']:+.4f} ± "
                f"{row['difference_interval'] or math.inf:.4f}, {verdict(row)}."
                for row in same
            ]
    steps = [row for row in rows if row.get("algorithm") in (ELS, ULS)]
    ends = sum(row["rate"] in (RATES[0], RATES[-1]) for row in steps)
    return [*result, f"The best step lies at an end of the grid in {ends} of {len(steps)}."]


def _point(row: Row) -> str:
    users = f", {row['factor']} times the users in the accounting" if row["factor"] > 1 else ""
    return f"ε = {row['epsilon']:g}{users}" + (
        f", compute {row['compute']}" if row["compute"] else ""
    )


def plot(rows: Rows) -> Figure:
    """Loss against compute, a panel for each ε and number of users; a row for how users write."""
    measured = [row for row in rows if "algorithm" in row]
    private = [row for row in measured if row["algorithm"] in (ELS, ULS)]
    pairs = list(dict.fromkeys((row["epsilon"], row["factor"]) for row in private))
    kinds = distinct(private, "diversity")
    figure = Figure(figsize=(2.7 * len(pairs), 2.7 * len(kinds) + 0.4), layout="constrained")
    panels = figure.subplots(len(kinds), len(pairs), squeeze=False, sharex=True, sharey="row")
    for (i, kind), (j, (epsilon, factor)) in itertools.product(enumerate(kinds), enumerate(pairs)):
        axes = panels[i, j]
        for name, colour in ((ELS, "C3"), (ULS, "C0")):
            same = where(private, diversity=kind, algorithm=name, epsilon=epsilon, factor=factor)
            style = {"fmt": "o-", "ms": 4, "lw": 1.2, "color": colour, "label": name}
            with_intervals(axes, same, "compute", "loss", **style)
        for name, dashes in ((BASE, ":"), (NONE, "--")):
            for row in where(measured, diversity=kind, algorithm=name):
                axes.axhline(row["loss_mean"], color="0.5", ls=dashes, lw=1, label=name)
        users = f", users × {factor}" if factor > 1 else ""
        axes.set_title(f"{kind}, ε = {epsilon:g}{users}", fontsize=9)
        log_ticks(axes, distinct(private, "compute"))
        open_corner(axes)
    for axes in panels[-1]:
        axes.set_xlabel("texts a round")
    for axes in panels[:, 0]:
        axes.set_ylabel("loss, nats a token")
    legend_below(figure, 4)
    return figure
