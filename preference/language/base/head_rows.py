"""A reward's head of several rows: the crowd's reward, and directions in which people differ.

Legend: H numbers of a state, V rows beside the crowd's.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn import Linear, Parameter


def add_rows(head: Linear, rows_VH: torch.Tensor) -> None:
    """Give a head of one number more rows, in place; their biases are zero, as nobody sees them in
    differences of rewards."""
    _put(head, torch.cat([head.weight.detach(), rows_VH.to(head.weight)]), len(rows_VH))


@contextmanager
def first_row(head: Linear) -> Iterator[None]:
    """The head has the crowd's row alone within, as it is saved."""
    whole = head.weight, head.bias, head.out_features
    try:
        _put(head, head.weight.detach()[:1], 0)
        yield
    finally:
        head.weight, head.bias, head.out_features = whole


def _put(head: Linear, weight_KH: torch.Tensor, added: int) -> None:
    trains = head.weight.requires_grad
    head.weight = Parameter(weight_KH.contiguous(), requires_grad=trains)
    head.out_features = len(weight_KH)
    if head.bias is not None:
        bias_1 = head.bias.detach()[:1]
        bias_K = torch.cat([bias_1, bias_1.new_zeros(added)])
        head.bias = Parameter(bias_K, requires_grad=trains)
