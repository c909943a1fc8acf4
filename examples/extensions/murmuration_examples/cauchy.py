"""A preference model: of two responses, by a link with heavy tails."""

import math

import torch

from murmuration.preference.models import pair_loss


class Cauchy:
    """F(z) = ½ + arctan(z) / π: a surprising judgement pulls less."""

    def log_cdf(self, z: torch.Tensor) -> torch.Tensor:
        """log F(z)."""
        return self._cdf(z).log()

    def log_slope(self, z: torch.Tensor) -> torch.Tensor:
        """F′(z) / F(z)."""
        return 1.0 / (math.pi * (1.0 + z * z) * self._cdf(z))

    def _cdf(self, z: torch.Tensor) -> torch.Tensor:
        return torch.atan2(torch.ones_like(z), -z) / math.pi


CAUCHY = pair_loss("cauchy", Cauchy(), help="for pairs with heavy tails", scores="Cauchy quantiles")
