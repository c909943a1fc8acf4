"""That the table of faults follows the code."""

from collections import Counter

import pytest
from faults import ROOT, load

FAULTS = load()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_changes_one_place_and_has_tests(fault):
    code = (ROOT / fault.file).read_text(encoding="utf-8")
    assert fault.applied(code) != code
    assert [name for name in fault.covering if not (ROOT / name).is_file()] == []


def test_faults_are_spread_over_the_rooms():
    rooms = Counter(fault.file.partition("/")[0] for fault in FAULTS)
    assert len(FAULTS) >= 60
    assert {"privacy", "strategies", "client", "preference", "server"} <= set(rooms)
