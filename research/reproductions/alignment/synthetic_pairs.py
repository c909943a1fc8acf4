"""Synthetic preferences of a private reward, beside as many true judgements.

A reward is learnt from the embedded population's judgements with user-level privacy (ULS). A small
model of public text answers fresh prompts, several times each, and the reward says which answer is
the best and which the worst (`alignment.synthesis`). Told by the population's truth:

- how often the label is the crowd's, of pairs that can be read;
- how well a linear head that is fitted to the pairs, without privacy, predicts judgements of other
  users, by hashing features as those of the private reward, with a ridge chosen by cross-validation
  on the pairs alone;
- how often a policy that is fitted to the pairs, by DPO, wins over the model that it began from.

Beside them: as many true judgements, each of one user, which nobody would have without giving up
their privacy; and the same synthetic pairs with the crowd's own labels, which tells what the
reward's mistakes cost and what it is that the policy wrote the pairs itself.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from murmuration.alignment.pool import Reward, draw
from murmuration.alignment.synthesis import preferences
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.features.hashing import feature_map, parse_features
from murmuration.preference.language.generation import Sampling, Writer
from murmuration.preference.linear.examples import pair_examples
from murmuration.preference.reward import RewardModel
from murmuration.research.reproductions.entry import Row, Rows, in_processes, mean_sd, tracked
from murmuration.research.reproductions.policies.reference import reference
from murmuration.research.reproductions.policies.written import Contest, Pairs, Won, cautions
from murmuration.sims.population.population import Judgement, Population
from murmuration.sims.population.win_rate import worth
from murmuration.strategies.config import RunConfig

SYNTHETIC, RELABELLED, TRUE = "synthetic", "synthetic, the crowd's labels", "true judgements"
REWARD = "the private reward itself"
SAMPLES, SAMPLING = 4, Sampling(temperature=0.7, max_new_tokens=100)
_RIDGES = np.logspace(-4, 4, 9)  # their inverses, that cross-validation chooses from


@dataclass(frozen=True, eq=False)
class Source:
    """Pairs of a source; ``agrees``: how often the label is the crowd's, of those that can be read,
    ``readable`` is the share that can."""

    name: str
    pairs: Pairs
    agrees: float | None
    readable: float


def synthetic_pairs(
    quick: bool = False,
    *,
    base: str = "",
    epsilon: float = 3.0,
    rounds: int = 20,
    cohort: int = 200,
    pairs: int = 1000,
    prompts: int = 500,
    seeds: int = 3,
) -> list[dict[str, Any]]:
    """Rows ``pairs, count, readable, agrees, accuracy, win_rate_mean, win_rate_sd, unreadable``.

    ``accuracy`` is of the fitted head on judgements of other users; ``sd`` is over seeds of fit and
    answers. The last row is of the private reward that labelled, and has its accuracy alone.
    ``base`` is the folder of a model of the population's public text; one is made without.
    """
    texts = 16_000
    if quick:
        texts, rounds, cohort, pairs, prompts, seeds = 300, 3, 200, 60, 15, 1
    if not base:
        with reference(Population().texts("train", texts)) as made:
            return _rows(made, epsilon, rounds, cohort, pairs, prompts, seeds)
    return _rows(base, epsilon, rounds, cohort, pairs, prompts, seeds)


def _rows(
    base: str, epsilon: float, rounds: int, cohort: int, count: int, prompts: int, seeds: int
) -> list[dict[str, Any]]:
    population = Population()
    judge = private_reward(epsilon, rounds, cohort)
    mine = synthetic(base, judge, count)
    sources = [mine, relabelled(mine), judged(population, count)]
    # Drawn apart from those that pairs are about, by another seed.
    asked = list(population.prompts("test", prompts, 1))
    tasks = [(base, one.pairs, asked, seed) for one in sources for seed in range(seeds)]
    result = list(tracked(in_processes(policy, tasks), "policies", len(tasks)))
    others = [one for one in population.judgements("test") if not one.tie]
    rows: list[dict[str, Any]] = []
    for place, source in enumerate(sources):
        won = result[place * seeds : (place + 1) * seeds]
        rows.append(
            {
                "pairs": source.name,
                "count": len(source.pairs.prompts),
                "readable": source.readable,
                "agrees": source.agrees,
                "accuracy": accuracy(head(source.pairs), others),
                **mean_sd("win_rate", [each.wins for each in won]),
                "unreadable": fmean(each.unreadable for each in won),
            }
        )
    rows.append({"pairs": REWARD, "epsilon": epsilon, "accuracy": accuracy(judge, others)})
    return rows


def private_reward(epsilon: float, rounds: int, cohort: int) -> RewardModel:
    """A linear head of a run of ULS on the embedded population, at δ = 1e-5."""
    from murmuration.sims.runtimes.execute import execute

    with tempfile.TemporaryDirectory(prefix="murmuration-reward-") as folder:
        config = RunConfig(
            data="murmuration.population:train",
            test="murmuration.population:test",
            epsilon=epsilon,
            delta=1e-5,
            rounds=rounds,
            cohort=cohort,
            seed=0,
            out=str(Path(folder) / "run"),
        )
        execute(config, quiet=True)
        result = RewardModel.load(Path(config.out) / "model")
    assert isinstance(result, RewardModel)  # of hashing features
    return result


def synthetic(base: str, judge: Reward, count: int) -> Source:
    """So many pairs that a model wrote and a reward labelled."""
    # Some more prompts than pairs: those whose answers are all alike make none.
    prompts = list(Population().prompts("test", count + count // 10, 0))
    pool = draw(Writer.load(base), judge, prompts, SAMPLES, SAMPLING)
    rows = preferences(pool).rows[:count]
    said = [(str(row["prompt"]), str(row["chosen"]), str(row["rejected"])) for row in rows]
    return _source(SYNTHETIC, said, _margins(said))


def relabelled(source: Source) -> Source:
    """The same pairs with the labels of the crowd's true reward, where that can be read."""
    said = _chosen_first(source.pairs)
    margins = _margins(said)
    turned = [
        (prompt, chosen, rejected) if not margin < 0 else (prompt, rejected, chosen)
        for (prompt, chosen, rejected), margin in zip(said, margins, strict=True)
    ]
    return _source(RELABELLED, turned, _margins(turned))


def judged(population: Population, count: int) -> Source:
    """So many judgements drawn from all users'; their labels are people's, not the crowd's."""
    given = [one for one in population.judgements("train") if not one.tie]
    some = [given[at] for at in np.random.default_rng(0).choice(len(given), count, replace=False)]
    said = [(one.prompt, one.chosen.text, one.rejected.text) for one in some]
    return _source(TRUE, said, [one.crowd_margin for one in some])


def _source(name: str, said: Sequence[tuple[str, str, str]], margins: Sequence[float]) -> Source:
    first_J = np.random.default_rng(1).random(len(said)) < 0.5  # the better one is, by a coin
    shown = [
        (one, other) if first else (other, one)
        for (_, one, other), first in zip(said, first_J, strict=True)
    ]
    known = [margin for margin in margins if not isnan(margin)]
    agrees = fmean(0.5 if not margin else margin > 0 for margin in known) if known else None
    pairs = Pairs([prompt for prompt, *_ in said], shown, first_J)
    return Source(name, pairs, agrees, len(known) / max(1, len(margins)))


def _margins(said: Sequence[tuple[str, str, str]]) -> list[float]:
    """The crowd's true reward of the first less that of the second; nan if one cannot be read."""
    prompts = [prompt for prompt, *_ in said]
    one, other = (worth(prompts, [row[at] for row in said]).rewards_P for at in (1, 2))
    return (one - other).tolist()


def _chosen_first(pairs: Pairs) -> list[tuple[str, str, str]]:
    return [
        (prompt, one, other) if first else (prompt, other, one)
        for prompt, (one, other), first in zip(
            pairs.prompts, pairs.responses, pairs.first_J, strict=True
        )
    ]


def head(pairs: Pairs) -> RewardModel:
    """A linear head over hashing features, fitted to pairs without privacy."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score

    features = feature_map(parse_features("hashing"))
    said = _chosen_first(pairs)
    x_JD = pair_examples(_judgements(said), features).x_RD.numpy()
    # Of both signs, as a classifier wants them; which is which tells nothing, as there is no
    # intercept.
    sign_J = np.where(np.arange(len(x_JD)) % 2, 1.0, -1.0)
    fits = [LogisticRegression(C=c, fit_intercept=False, max_iter=1000) for c in _RIDGES]
    x_JD = x_JD * sign_J[:, None]
    likely = [cross_val_score(fit, x_JD, sign_J, scoring="neg_log_loss").mean() for fit in fits]
    fit = fits[int(np.argmax(likely))].fit(x_JD, sign_J)
    return RewardModel(fit.coef_[0].astype(np.float32), features)


def accuracy(model: RewardModel, others: Sequence[Judgement]) -> float:
    """Return how often a reward agrees with judgements of others, which are no ties; pooled."""
    said = [(one.prompt, one.chosen.text, one.rejected.text) for one in others]
    return model.accuracy(_judgements(said)).pooled


def _judgements(said: Sequence[tuple[str, str, str]]) -> Judgements:
    """Each of somebody else; the first response is preferred."""
    return Judgements(
        user_ids=tuple(map(str, range(len(said)))),
        start_U=np.arange(len(said) + 1),
        prompts=[prompt for prompt, *_ in said],
        responses=[(one, other) for _, one, other in said],
        y_R=np.ones(len(said), np.float32),
    )


def policy(task: tuple[str, Pairs, Sequence[str], int]) -> Won:
    """Return what a policy fitted to pairs by DPO wins: of a base, pairs, prompts to answer, a
    seed."""
    base, pairs, asked, seed = task
    return Contest(base, pairs, asked, Population.crowd, seed).won("dpo", pairs.first_J)


def remarks(rows: Rows) -> list[str]:
    """Return what labels, heads and policies are worth, in words."""
    by = {row["pairs"]: row for row in rows}
    mine, same, true, reward = (by[name] for name in (SYNTHETIC, RELABELLED, TRUE, REWARD))
    return [
        *cautions(rows),
        f"Labels of the reward at ε = {reward['epsilon']:g} a user agree with the crowd's true "
        f"reward in {_share(mine['agrees'])} of the pairs that can be read "
        f"({mine['readable']:.0%}); users' own judgements in {_share(true['agrees'])}.",
        f"A head fitted to synthetic pairs predicts {mine['accuracy']:.1%} of other users' "
        f"judgements; to true ones {true['accuracy']:.1%}; the private reward "
        f"{reward['accuracy']:.1%}.",
        f"DPO wins over its reference: {_said(mine)} from synthetic pairs, {_said(same)} from the "
        f"same with the crowd's labels, {_said(true)} from true judgements (mean ± sd over "
        "seeds of fit and answers).",
        "Synthetic pairs cost users nothing beyond the reward; true judgements would have to be "
        "given away.",
    ]


def _share(value: float | None) -> str:
    return "no share" if value is None else f"{value:.1%}"


def _said(row: Row) -> str:
    sd = "" if row["win_rate_sd"] is None else f" ± {row['win_rate_sd']:.1%}"
    return f"{row['win_rate_mean']:.1%}{sd}"
