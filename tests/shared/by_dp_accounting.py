"""Our single releases as ``dp_accounting``'s distributions, which answer by their own rules."""

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

from murmuration.privacy.accounting.discrete_pmf import DiscretePMF
from murmuration.privacy.accounting.events import Event
from murmuration.privacy.adjacency import Adjacency

RELATION = {
    Adjacency.ADD_REMOVE: NeighboringRelation.ADD_OR_REMOVE_ONE,
    Adjacency.ZERO_OUT: NeighboringRelation.REPLACE_SPECIAL,
    Adjacency.REPLACE: NeighboringRelation.REPLACE_ONE,
    Adjacency.REPLACE_LABELS: NeighboringRelation.REPLACE_ONE,
}


def as_pmf(masses: DiscretePMF, interval: float) -> pld_pmf.PLDPmf:
    """One direction."""
    if not len(masses.mass_N):
        return pld_pmf.SparsePLDPmf({0: 0.0}, interval, masses.infinite, True)
    first = int(masses.index_N[0])
    mass_N = np.zeros(int(masses.index_N[-1]) - first + 1)
    mass_N[masses.index_N - first] = masses.mass_N
    return pld_pmf.DensePLDPmf(interval, first, mass_N, masses.infinite, True)


def loss_of(event: Event, adjacency: Adjacency, interval: float) -> pld.PrivacyLossDistribution:
    """Both directions, or the one that they have in common."""
    return pld.PrivacyLossDistribution(
        *(as_pmf(masses, interval) for masses in event.loss(adjacency, interval))
    )


def masses_of(pmf: pld_pmf.PLDPmf) -> DiscretePMF:
    """The library's distribution as ours."""
    if isinstance(pmf, pld_pmf.SparsePLDPmf):
        index_N = np.array(sorted(pmf._loss_probs), np.int64)
        mass_N = np.array([pmf._loss_probs[index] for index in index_N.tolist()], np.float64)
        kept_N = mass_N > 0.0
        return DiscretePMF(index_N[kept_N], mass_N[kept_N], float(pmf._infinity_mass))
    dense = pmf.to_dense_pmf()
    return DiscretePMF.dense(
        dense._lower_loss, np.asarray(dense._probs, np.float64), dense._infinity_mass
    )
