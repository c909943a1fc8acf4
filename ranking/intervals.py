"""Errors of strengths and ranks: from the sampling of voters, their votes, and the noise.

The strengths solve estimating equations ψ(θ; z) = 0 that are linear in the released sums z, so
their covariance is the sandwich J⁻¹(V + N)J⁻¹, where J is the curvature of the likelihood, N the
covariance that the released sums' noise gives ψ, and V that of the sum of the voters' own terms ψu.

One voter's votes go together, since tastes differ, so V is not the curvature, and a bootstrap over
votes comes out too small. V is Σu ψu ψuᵀ (clustered by voter: Liang and Zeger). Of it the
release has the diagonal, as the sum of squares of the voters' net scores, from which what their
mean explains is subtracted; the correlations are those of independent votes. With D the diagonal
matrix of the ratios, V = D^½ V₀ D^½, where V₀ is that of independent votes.
Where noise leaves nothing of the votes, the ridge has the last word, and an interval is as wide as
the prior: what the ridge takes off counts as an error, too.

An item's range of ranks holds, for all items at once with the confidence, its rank by true
strengths: it comes after those that are better beyond doubt, and before those that are worse beyond
doubt (Klein, Wright and Wieczorek; Mogstad, Romano, Shaikh and Wilhelm). "Beyond doubt" is that a
difference is larger than a multiple of its standard deviation, the same multiple for all pairs,
which no standardized difference exceeds with the confidence.

Legend: K items, S draws, E numbers, one an item and one for ties where there are any.
"""

import numpy as np
from scipy import special

from murmuration.ranking.bradley_terry import (
    PRIOR_STD,
    Strengths,
    curvature,
    laplacian,
)
from murmuration.ranking.release import RankingRelease

#: What ratios of variance differ by between items, as a share of their mean, where the release says
#: nothing of it: those of which noise leaves less are drawn to what all items have together.
_BETWEEN_ITEMS = 0.25
#: With it 95 % intervals hold the truth in 95 % of the boards whose numbers of votes noise inflates
#: most, the first twentieth of 500 with 60 voters at ε = 0.5; without it in 88 %.
_COUNT_DOUBT = 4.0
#: Up to so many items the multiple is simulated; beyond, Bonferroni's is as good and takes no time.
_MOST_SIMULATED = 100
_DRAWS_S = 4000


def response(fitted: Strengths, pairs_KK: np.ndarray, ridge: float) -> np.ndarray:
    """J⁻¹ on strengths with mean zero, (K, E): their derivative by the left sides of the equations.

    Args:
        fitted: the strengths, by ``bradley_terry.strengths``.
        pairs_KK: the number of votes on each pair, as used for the fit.
        ridge: as used for the fit.
    """
    items = len(fitted.theta_K)
    information = curvature(fitted, pairs_KK)
    # Curvature along all strengths together, which is taken out below, only so as to invert.
    information[:items, :items] += ridge * np.eye(items) + pairs_KK.mean()
    centre = np.eye(len(information))
    centre[:items, :items] -= 1 / items
    return (centre @ np.linalg.inv(information) @ centre)[:items]


def covariance(
    fitted: Strengths,
    release: RankingRelease,
    pairs_KK: np.ndarray,
    pairs_std: float,
    response_KE: np.ndarray,
    *,
    ridge: float,
) -> np.ndarray:
    """The covariance of the strengths' error, (K, K), from sampling of voters, noise, and the
    ridge's bias for strengths that follow the prior.

    Args:
        fitted: the strengths, by ``bradley_terry.strengths``.
        release: of one board.
        pairs_KK: the number of votes on each pair, as used for the fit.
        pairs_std: of the error of each count of ``pairs_KK``, if they were released.
        response_KE: by ``response``.
        ridge: as used for the fit.
    """
    votes_EE = _voter_covariance(fitted, release, pairs_KK)
    noise_EE = noise_covariance(fitted, release, pairs_KK, pairs_std)
    ridge_EE = (ridge * PRIOR_STD) ** 2 * np.eye(len(votes_EE))
    return response_KE @ (votes_EE + noise_EE + ridge_EE) @ response_KE.T


def _voter_covariance(
    fitted: Strengths, release: RankingRelease, pairs_KK: np.ndarray
) -> np.ndarray:
    """V, (E, E): the covariance of the equations from the sampling of voters; arguments as of
    ``covariance``.

    The equations contain half of the net scores.
    """
    effects_K = design_effects(fitted, release, pairs_KK)
    numbers = len(effects_K) + bool(fitted.tie)
    root_E = np.sqrt(np.append(effects_K, effects_K.mean())[:numbers])
    votes_EE = independent_covariance(fitted, pairs_KK, release.pairing == "public")
    return votes_EE * np.outer(root_E, root_E)


def count_doubt(votes: float, std: float, variance_K: np.ndarray) -> float:
    """The factor by which a covariance is larger because the number of votes is noisy itself.

    All curvature is proportional to the number. Where noise made it too large, strengths and
    intervals are too small, by more than what is linear in the noise (``noise_covariance``). The
    error of the number also grows with its share of noise, so the factor is a function of their
    ratio, found by simulation; but it makes no interval wider than the prior.

    Args:
        votes: their noisy number.
        std: of that noise.
        variance_K: of strengths.
    """
    wider = (1.0 + _COUNT_DOUBT * (std / votes) ** 2) ** 2
    return min(wider, max(1.0, PRIOR_STD**2 / max(float(variance_K.max()), 1e-300)))


def independent_covariance(
    fitted: Strengths, pairs_KK: np.ndarray, pairing_known: bool
) -> np.ndarray:
    """V₀, (E, E): the covariance of the equations if all votes were independent.

    Args:
        fitted: the strengths.
        pairs_KK: the number of votes on each pair, or its expectation.
        pairing_known: whether it is the expectation, so that the pairs themselves are random, too.
    """
    if not pairing_known:
        return curvature(fitted, pairs_KK)
    decided_KK = fitted.win_KK + fitted.win_KK.T
    votes = pairs_KK.sum() / 2
    total = (pairs_KK * fitted.tie_KK).sum() / 2
    mean = np.append((pairs_KK * fitted.margin_KK).sum(axis=1) / 2, total) / max(votes, 1.0)
    second = np.zeros((len(mean), len(mean)))
    second[:-1, :-1] = laplacian(pairs_KK * decided_KK) / 4
    second[-1, -1] = total
    result = second - votes * np.outer(mean, mean)
    return result if fitted.tie else result[:-1, :-1]


def design_effects(fitted: Strengths, release: RankingRelease, pairs_KK: np.ndarray) -> np.ndarray:
    """The ratio of the variance of each item's net score to that with independent votes, (K,).

    The variance is about the mean that the model gives a voter's net score for their number of
    votes. Items whose estimate is mostly noise take the pooled ratio. No ratio is less than half of
    the pooled one, and that is not less than its own noise.
    """
    items, votes = len(fitted.theta_K), pairs_KK.sum() / 2
    public, squares = release.pairing == "public", max(float(release.squares_B[0]), votes)
    mean_K = (pairs_KK * fitted.margin_KK).sum(axis=1) / votes
    by_pair_K = (pairs_KK * fitted.margin_KK**2).sum(axis=1)
    explained_K = squares * mean_K**2 if public else by_pair_K + (squares - votes) * mean_K**2
    alone_K = 4 * independent_covariance(fitted, pairs_KK, public).diagonal()[:items]
    alone_K = np.maximum(alone_K, alone_K.mean() * 1e-6)
    clustered_K = release.variance_BK[0] - explained_K
    noise_std = release.noise.variance
    together = max(clustered_K.sum(), noise_std * np.sqrt(items)) / alone_K.sum()
    between_K = (_BETWEEN_ITEMS * together * alone_K) ** 2
    weight_K = between_K / np.maximum(between_K + noise_std**2, 1e-300)
    own_K = together + weight_K * (clustered_K / alone_K - together)
    return np.maximum(own_K, together / 2)


def noise_covariance(
    fitted: Strengths, release: RankingRelease, pairs_KK: np.ndarray, pairs_std: float
) -> np.ndarray:
    """N, (E, E): the covariance of the noise in the estimating equations; arguments as of
    ``covariance``.
    """
    items, noise = len(fitted.theta_K), release.noise
    margin_KK, tie_KK = fitted.margin_KK, fitted.tie_KK
    result = np.zeros((items + 1, items + 1))
    result[:items, :items] = noise.net**2 / 4 * np.eye(items)
    result[items, items] = noise.ties**2
    if release.pairing == "public":  # all counts of pairs move with the number of votes
        moved = np.append((pairs_KK * margin_KK).sum(axis=1) / 2, (pairs_KK * tie_KK).sum() / 2)
        result += np.outer(moved, moved) * (2 * noise.votes / pairs_KK.sum()) ** 2
    else:
        squared_KK = pairs_std**2 * (pairs_KK > 0)  # one that was set to zero is so for good
        cross_K = (squared_KK * margin_KK * tie_KK).sum(axis=1) / 2
        result[:items, :items] += laplacian(squared_KK * margin_KK**2) / 4
        result[:items, items] += cross_K
        result[items, :items] += cross_K
        result[items, items] += (squared_KK * tie_KK**2).sum() / 2
    return result if fitted.tie else result[:items, :items]


def difference_std(covariance_KK: np.ndarray) -> np.ndarray:
    """Return the standard deviation of the difference of each two strengths, (K, K)."""
    variance_K = covariance_KK.diagonal()
    squared_KK = variance_K[:, None] + variance_K - 2 * covariance_KK
    return np.sqrt(np.maximum(squared_KK, 0.0))


def simultaneous_multiple(covariance_KK: np.ndarray, confidence: float = 0.95) -> float:
    """Return the multiple of their standard deviations that no two items' difference exceeds.

    The draws are always the same: the multiple is a function of the covariance.
    """
    items = len(covariance_KK)
    pairs = items * (items - 1) / 2
    bonferroni = -float(special.ndtri((1 - confidence) / 2 / pairs))
    std_KK = difference_std(covariance_KK)
    if items > _MOST_SIMULATED or not (std_KK[np.triu_indices(items, 1)] > 0).all():
        return bonferroni
    values_K, vectors_KK = np.linalg.eigh(covariance_KK)
    root_KK = vectors_KK * np.sqrt(np.maximum(values_K, 0.0))
    draws_SK = np.random.default_rng(0).standard_normal((_DRAWS_S, items)) @ root_KK.T
    largest_S = np.zeros(_DRAWS_S)
    for first in range(items - 1):  # the pairs of one item at a time, so that it fits the cache
        off_SK = np.abs(draws_SK[:, first + 1 :] - draws_SK[:, first : first + 1])
        np.maximum(largest_S, (off_SK / std_KK[first, first + 1 :]).max(axis=1), out=largest_S)
    return min(float(np.quantile(largest_S, confidence)), bonferroni)


def told_apart(
    theta_K: np.ndarray, covariance_KK: np.ndarray, confidence: float = 0.95
) -> np.ndarray:
    """Return whether the item of the row is better than that of the column beyond doubt, (K, K)."""
    difference_KK = theta_K[:, None] - theta_K
    multiple = simultaneous_multiple(covariance_KK, confidence)
    return difference_KK > multiple * difference_std(covariance_KK)


def rank_ranges(better_KK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each item's best and worst rank, (K,) each, from 1, of who is better than whom."""
    return 1 + better_KK.sum(axis=0), len(better_KK) - better_KK.sum(axis=1)
