"""Strengths of items where length and style of their answers are held alike, as arenas do.

A vote between i and j has covariates z, one number each in [−1, 1]: by how much the answer of i has
more of it, (xi − xj)/(xi + xj), or nothing where neither has any. The model is Bradley–Terry's or
Davidson's with θi − θj + β·z in place of θi − θj. Its likelihood needs every vote, and a release
has sums: of z by who was preferred (q), of each item's z (M), and of zzᵀ (G). They are enough if
what z varies by within a pair is taken for the same in all pairs:

- *Means.* a = L⁺M, with L the Laplacian of how often pairs were voted on: the z of a pair is
  ai − aj on average, and V = (G − aᵀM)/votes is how it varies about that.
- *Marginal strengths.* Without covariates the fit has θ + a·β, flatter by what βᵀz varies by
  within a pair, s² = βᵀVβ: a logistic curve that is averaged over a normal of this variance is
  about one that is √(1 + πs²/8) times as flat.
- *Effects.* The expectation of q − aᵀnet is Vβ times the summed slope of the expected net scores
  (Stein's identity), so β follows, and θ is what is left of the marginal strengths.

That is consistent where z is normal within pairs, spread alike in all of them and independent of
who votes. Elsewhere strengths were close to it, and effects off by up to a tenth, however many
voters there were: where the items whose answers are longer are also the stronger ones, or lengths
of some spread more than of others. So an effect's error has a part that is proportional to it.
Other errors are those of ``intervals``, and of q by the voters' own squares, and the noise of all
sums, to first order. Coverage is measured in docs/research/ranking.md.

Legend: B boards, K items, C covariates, E numbers of the equations without covariates.
"""

from dataclasses import dataclass

import numpy as np

from murmuration.preference.ranking.bradley_terry import PRIOR_STD, Strengths, laplacian
from murmuration.preference.ranking.release import RankingRelease

#: The standard deviation of the prior of effects: of an answer that has all of it, 174 points.
_PRIOR_STD = 1.0
#: The standard deviation of what the form of the fit makes an effect wrong by, as a part of it.
_FORM_ERROR = 0.06
#: Less than this a covariate does not vary within pairs: then nothing is known of its effect.
_LEAST_VARIANCE = 1e-3
#: More is impossible.
_MOST_VARIANCE = 1.0


@dataclass(frozen=True, eq=False)
class Controlled:
    """Strengths where covariates are alike, and effects of these.

    Attributes:
        theta_K: with mean zero, in logits.
        covariance_KK: of their errors.
        effect_C: β, in logits for an answer that has all of it.
        effect_std_C: of its error.
    """

    theta_K: np.ndarray
    covariance_KK: np.ndarray
    effect_C: np.ndarray
    effect_std_C: np.ndarray


def controlled(
    fitted: Strengths,
    release: RankingRelease,
    pairs_KK: np.ndarray,
    response_KE: np.ndarray,
    covariance_KK: np.ndarray,
    net_covariance_KK: np.ndarray,
) -> Controlled:
    """Return the strengths and the effects of covariates.

    Args:
        fitted: the strengths without covariates, by ``bradley_terry.strengths``.
        release: of one board, with covariates.
        pairs_KK: how often each pair was voted on, as they were fitted with.
        response_KE: by ``intervals.response``.
        covariance_KK: of ``fitted``'s strengths, by ``intervals.covariance``.
        net_covariance_KK: of the net scores, by the sampling of voters alone.
    """
    assert release.covariate_net_BC is not None
    assert release.covariate_items_BKC is not None
    assert release.covariate_squares_BCC is not None
    net_K, q_C = release.net_BK[0], release.covariate_net_BC[0]
    sums_KC, noise = release.covariate_items_BKC[0], release.noise
    votes, items = pairs_KK.sum() / 2, len(net_K)
    inverse_KK = np.linalg.pinv(laplacian(pairs_KK), rcond=1e-9, hermitian=True)
    a_KC = np.clip(inverse_KK @ sums_KC, -1.0, 1.0)  # as means of what is within
    # Noise adds to what means seem to explain, the same to each covariate.
    by_noise_CC = noise.covariate_items**2 * np.trace(inverse_KK) * np.eye(len(q_C))
    within_CC = release.covariate_squares_BCC[0] - (a_KC.T @ sums_KC - by_noise_CC)
    least = max(_LEAST_VARIANCE, noise.covariate_squares / votes)
    spread_CC = _within(within_CC / votes, min(least, _MOST_VARIANCE), _MOST_VARIANCE)
    decided_KK = fitted.win_KK + fitted.win_KK.T
    free = (pairs_KK * (decided_KK - fitted.margin_KK**2)).sum() / 2
    slope = free / 2
    sampled_CC = _sampled(release, a_KC, net_covariance_KK, spread_CC * free)
    noisy_CC = noise.covariate_net**2 * np.eye(len(q_C)) + noise.net**2 * a_KC.T @ a_KC
    # The prior weighs as much against noisy sums as against independent votes.
    dispersion = max(1.0, float(np.trace(sampled_CC + noisy_CC) / np.trace(spread_CC * slope)))
    prior = dispersion / _PRIOR_STD**2
    inverse_CC = np.linalg.inv(spread_CC * slope + prior * np.eye(len(q_C)))
    beta_C = inverse_CC @ (q_C - a_KC.T @ net_K)
    flat = np.sqrt(1.0 + np.pi * beta_C @ spread_CC @ beta_C / 8.0)
    theta_K = flat * (fitted.theta_K - a_KC @ beta_C)

    # How β and θ move with the sums: δβ = inverse·(δq − aᵀδnet − δMᵀt − slope·δV·β), where
    # V·votes = G − MᵀL⁺M, and δθ = flat·(δθ' − L⁺δM·β − a·δβ).
    t_K = inverse_KK @ net_K
    by_item_CKC = np.einsum("cd,k->ckd", inverse_CC, slope / votes * (a_KC @ beta_C) - t_K)
    by_item_CKC += slope / votes * np.einsum("ck,d->ckd", inverse_CC @ a_KC.T, beta_C)
    by_square_CCC = -slope / votes * np.einsum("cd,e->cde", inverse_CC, beta_C)
    by_square_CCC = (by_square_CCC + by_square_CCC.transpose(0, 2, 1)) / 2
    beta_CC = inverse_CC @ (sampled_CC + noisy_CC) @ inverse_CC.T
    beta_CC += noise.covariate_items**2 * np.einsum("ckd,ekd->ce", by_item_CKC, by_item_CKC)
    beta_CC += noise.covariate_squares**2 * np.einsum("cij,eij->ce", by_square_CCC, by_square_CCC)
    beta_CC += (prior * _PRIOR_STD) ** 2 * inverse_CC @ inverse_CC.T  # what the prior takes off

    direct_KKC = np.einsum("ik,d->ikd", inverse_KK, beta_C)
    crossed_KK = noise.covariate_items**2 * (
        np.einsum("ikd,ckd->ic", direct_KKC, by_item_CKC) @ a_KC.T
    )
    by_net_KK = response_KE[:, :items] / 2 @ (a_KC @ inverse_CC @ a_KC.T) * noise.net**2
    result_KK = covariance_KK + a_KC @ beta_CC @ a_KC.T
    result_KK += noise.covariate_items**2 * np.einsum("ikd,jkd->ij", direct_KKC, direct_KKC)
    result_KK += crossed_KK + crossed_KK.T + by_net_KK + by_net_KK.T
    centre_KK = np.eye(items) - 1.0 / items
    result_KK = flat**2 * centre_KK @ result_KK @ centre_KK
    # Where noise leaves nothing, an interval is as wide as the prior, as without covariates.
    most = max(PRIOR_STD**2, float(covariance_KK.diagonal().max()))
    result_KK *= min(1.0, most / float(result_KK.diagonal().max()))
    return Controlled(
        theta_K=theta_K - theta_K.mean(),
        covariance_KK=result_KK,
        effect_C=flat * beta_C,
        effect_std_C=flat
        * np.sqrt(np.maximum(beta_CC.diagonal(), 0.0) + (_FORM_ERROR * beta_C) ** 2),
    )


def _sampled(
    release: RankingRelease,
    a_KC: np.ndarray,
    net_covariance_KK: np.ndarray,
    independent_CC: np.ndarray,
) -> np.ndarray:
    """Return the covariance, (C, C), of q − aᵀnet by which voters came, and no less than that of
    independent votes.

    The voters' squares are those of their own q, about zero. Taken off are what their mean explains
    and what their net scores do, which the rest of q does not go with; covariates are taken to be
    correlated as those of independent votes.
    """
    assert release.covariate_net_BC is not None
    assert release.covariate_variance_BC is not None
    q_C, votes = release.covariate_net_BC[0], max(float(release.votes_B[0]), 1.0)
    squares = max(float(release.squares_B[0]), votes)
    own_C = release.covariate_variance_BC[0] - squares * (q_C / votes) ** 2
    own_C = own_C - (a_KC.T @ net_covariance_KK @ a_KC).diagonal()
    alone_C = independent_CC.diagonal()
    root_C = np.sqrt(np.maximum(own_C, alone_C) / alone_C)
    return independent_CC * np.outer(root_C, root_C)


def _within(matrix_CC: np.ndarray, least: float, most: float) -> np.ndarray:
    """Return the symmetric part of a matrix with all eigenvalues between two."""
    values_C, vectors_CC = np.linalg.eigh((matrix_CC + matrix_CC.T) / 2)
    return (vectors_CC * np.clip(values_C, least, most)) @ vectors_CC.T
