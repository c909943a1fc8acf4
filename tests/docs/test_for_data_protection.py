"""The page for the data protection officer: its table is computed again, and its claim is whole."""

import re
from pathlib import Path

import pytest

from murmuration import plan
from murmuration.privacy.attack_bounds import of_point, sure_at_most
from murmuration.reporting.evidence import _percent

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "for-data-protection.md").read_text(encoding="utf-8")
ROWS = {
    float(epsilon): cells.split(" | ")
    for epsilon, cells in re.findall(r"^\| ([\d.]+) \| (.+ %) \|$", PAGE, re.MULTILINE)
}
DELTA = 1e-5


def test_the_table_is_there():
    assert list(ROWS) == [0.5, 1.0, 2.0, 3.0, 5.0, 8.0]


@pytest.mark.parametrize("epsilon", ROWS)
def test_what_an_attacker_can_learn_is_computed_again(epsilon):
    usual = plan(epsilon=epsilon, delta=DELTA, rounds=200, users=2700)
    bounds = (
        of_point(epsilon, DELTA).tpr_at_1_percent_fpr,
        usual["tpr_at_1_percent_fpr"],
        sure_at_most(epsilon),
        sure_at_most(epsilon, 0.01),
    )
    assert ROWS[epsilon] == [_percent(share) for share in bounds]
