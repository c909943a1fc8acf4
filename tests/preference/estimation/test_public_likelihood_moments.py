"""Users' averaged rows, against a loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from murmuration.preference.estimation import public_likelihood
from murmuration.preference.estimation.public_likelihood import averaged
from murmuration.preference.linear.examples import PairExamples


@pytest.mark.parametrize("chunk", [1, 40, 10_000])
@pytest.mark.parametrize("width", [1, 3])
def test_averages_of_each_user_whatever_the_chunks(make_examples, monkeypatch, chunk, width):
    monkeypatch.setattr(public_likelihood, "CHUNK_NUMBERS", chunk)
    counts = [2, 1, 7, 3]
    flat = make_examples([count * width for count in counts])
    start_U = torch.tensor([0, 2, 3, 10, 13])
    examples = PairExamples(flat.x_RD, torch.ones(13 * width), start_U, width)
    kept = examples.x_RD.clone()
    slopes_JW = torch.randn(13, width, generator=torch.Generator().manual_seed(1))
    found = list(averaged(examples, slopes_JW))
    assert [part.start for part, _ in found] == [0, *(part.stop for part, _ in found[:-1])]
    rows_UD = torch.cat([rows for _, rows in found])
    assert rows_UD.dtype == torch.float64
    weighted = kept.double().numpy() * slopes_JW.double().reshape(-1, 1).numpy()
    edges = np.array([0, 2, 3, 10, 13]) * width
    for user, count in enumerate(counts):
        expected = weighted[edges[user] : edges[user + 1]].sum(axis=0) / count
        np.testing.assert_allclose(rows_UD[user].numpy(), expected, atol=1e-9)
    assert torch.equal(kept, examples.x_RD)


def test_arguments_in_float64_are_not_changed_either(make_examples):
    examples = make_examples([3, 4])
    examples = replace(examples, x_RD=examples.x_RD.double())
    kept = examples.x_RD.clone()
    list(averaged(examples, torch.full((7, 1), 2.0)))
    assert torch.equal(kept, examples.x_RD)


def test_nobody(make_examples):
    nobody = make_examples([2]).select(np.empty(0, dtype=np.int64))
    assert list(averaged(nobody, torch.ones(0, 1))) == []
