"""What a finished run says of itself: losses, and what must be known of labels."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
from local_runs import run

from murmuration.privacy.promise import ReleasedRun
from murmuration.server.evaluation import HeldOut
from murmuration.server.outcome import _loss


def test_loss_and_perplexity():
    found = _loss(HeldOut(accuracy=0.5, by_user=0.5, users=3, error=0.1, loss=2.0, loss_noise=0.1))
    assert found == {
        "heldout_loss": 2.0,
        "heldout_perplexity": pytest.approx(math.e**2),
        "heldout_loss_noise": 0.1,
    }


@pytest.mark.parametrize("loss", [None, math.nan, math.inf])
def test_a_loss_that_is_not_known_stays_unknown(loss):
    nothing = dict.fromkeys(("heldout_loss", "heldout_perplexity", "heldout_loss_noise"))
    assert _loss(HeldOut(accuracy=0.5, by_user=0.5, users=3, error=0.1, loss=loss)) == nothing
    assert _loss(None) == nothing


def test_a_perplexity_beyond_all_numbers():
    assert _loss(HeldOut(accuracy=0.5, by_user=0.5, users=3, error=0.1, loss=1e4)) == {
        "heldout_loss": 1e4,
        "heldout_perplexity": None,
        "heldout_loss_noise": None,
    }


@pytest.mark.settings(users=40, rounds=2, cohort=10)
@pytest.mark.parametrize("chosen", [True, False])
def test_settings_that_were_chosen_by_looking_at_the_data_are_a_caveat(config, chosen):
    name = "settings chosen by looking at the data"
    config = replace(config, chosen_from_data=chosen)
    said = [text for text in run(config)["warnings"] if "--chosen-from-data" in text]
    assert (name in ReleasedRun.read(Path(config.out, "ledger.jsonl")).terms.caveats) is chosen
    assert len(said) == chosen
