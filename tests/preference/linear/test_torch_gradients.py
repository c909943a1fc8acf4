"""Tensor operations for any preference model, against the compiled kernel."""

import numpy as np
import pytest
import torch

from murmuration.preference.linear.examples import PairExamples
from murmuration.preference.linear.likelihoods import Gaussian
from murmuration.preference.linear.local_steps import LocalSteps
from murmuration.preference.linear.torch_gradients import local_updates_alone
from murmuration.preference.models import pair_model, preference_model
from tests.preference.linear.test_numba_gradients import EVERY, judgements, run


@pytest.mark.parametrize(("name", "kind", "width"), EVERY)
@pytest.mark.parametrize("local", [LocalSteps(1, 1.0), LocalSteps(3, 0.2)])
def test_equal_to_the_compiled_kernel(name, kind, width, local):
    model = preference_model(name, kind, width)
    x_RD, y_R = judgements(kind, width, 30, 21, seed=3)
    examples = PairExamples(x_RD, y_R, torch.tensor([0, 10, 30]), width=width, kind=kind)
    theta_D = torch.linspace(-0.5, 0.5, 21)
    taken_N, ends_B = torch.tensor([4, 5, 6, 0, 22, 23]), np.array([3, 3, 4, 6])
    updates = local_updates_alone(examples, taken_N, ends_B, theta_D, model=model, local=local)
    wanted = run(x_RD, y_R, width, taken_N.numpy(), ends_B, theta_D, model, local.steps, local.rate)
    torch.testing.assert_close(updates, wanted, rtol=1e-5, atol=1e-6)


def test_a_link_of_ones_own_needs_no_compiled_form():
    own, shipped = pair_model("own", Gaussian()), preference_model("thurstone")
    assert own.code is None
    x_RD, y_R = judgements("pairs", 1, 10, 5, seed=2)
    examples = PairExamples(x_RD, y_R, torch.tensor([0, 10]))
    taken_N, ends_B = torch.arange(10), np.array([4, 10])
    updates = local_updates_alone(
        examples, taken_N, ends_B, torch.ones(5), model=own, local=LocalSteps(1, 1.0)
    )
    wanted = run(x_RD, y_R, 1, range(10), [4, 10], torch.ones(5), shipped)
    torch.testing.assert_close(updates, wanted, rtol=1e-5, atol=1e-6)
