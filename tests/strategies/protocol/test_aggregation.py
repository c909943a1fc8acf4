"""An answer counts for the users whom its node was asked for."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from murmuration.privacy.mechanisms.clipping import UserClip
from murmuration.strategies.protocol import messages
from murmuration.strategies.protocol.aggregation import Expected

CLIP = UserClip(0.5)
EXPECTED = Expected(
    {"sum": (4,)},
    {"sum": CLIP.step},
    lambda sums, users: CLIP.is_valid(sums["sum"], users),
)


def test_a_sum_is_no_longer_than_its_users_can_make_it():
    longest_D = CLIP.clip_sum(torch.full((3, 4), 9.0)).numpy()
    reply = SimpleNamespace(
        has_error=lambda: False, content=messages.sums_reply({"sum": longest_D}, {})
    )
    assert np.array_equal(EXPECTED.read(reply, 3)["sum"], longest_D)
    for users in (2, 0, None):
        with pytest.raises(messages.MalformedReply):
            EXPECTED.read(reply, users)
