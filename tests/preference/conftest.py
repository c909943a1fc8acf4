"""What several files of this room look at."""

import pytest

from murmuration.preference.features.frozen_states import FrozenStates


@pytest.fixture
def computed(monkeypatch):
    """How many texts each call of a frozen network had."""
    texts, plain = [], FrozenStates.together

    def together(self, given):
        texts.append(len(given["input_ids"]))
        return plain(self, given)

    monkeypatch.setattr(FrozenStates, "together", together)
    return texts
