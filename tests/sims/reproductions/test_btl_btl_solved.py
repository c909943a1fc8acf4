"""Public halves of synthetic judgements, and the strategies over them."""

from dataclasses import replace

import numpy as np
import torch

from murmuration.sims.reproductions.btl import Population, without_labels


def test_the_public_half_does_not_change_with_labels():
    examples = Population.draw(0, users=30, each=3, dimension=4).examples
    turn_R = torch.where(torch.rand(90, generator=torch.Generator().manual_seed(0)) < 0.5, -1.0, 1)
    turned = replace(examples, x_RD=examples.x_RD * turn_R[:, None])
    one, other = without_labels(examples), without_labels(turned)
    assert torch.equal(one.x_RD, other.x_RD)
    assert (one.x_RD[:, 0] >= 0).all()
    assert (one.y_R == 1).all()
    np.testing.assert_allclose(one.x_RD.abs(), examples.x_RD.abs())
