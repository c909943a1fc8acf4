"""A reward's head of several rows."""

import pytest
import torch
from torch.nn import Linear

from murmuration.preference.language.base.head_rows import add_rows, first_row


@pytest.mark.parametrize("bias", [False, True])
def test_rows_come_beside_the_first_and_go_for_a_while(bias):
    head, x = Linear(4, 1, bias=bias), torch.randn(3, 4)
    before = head(x)
    rows_VH = torch.randn(2, 4)
    add_rows(head, rows_VH)
    after = head(x)
    torch.testing.assert_close(after[:, :1], before)
    torch.testing.assert_close(after[:, 1:], x @ rows_VH.T)
    whole = head.weight
    with pytest.raises(OSError), first_row(head):
        torch.testing.assert_close(head(x), before)
        assert (head.out_features, head.weight.shape) == (1, (1, 4))
        raise OSError
    assert head.weight is whole
    torch.testing.assert_close(head(x), after)
