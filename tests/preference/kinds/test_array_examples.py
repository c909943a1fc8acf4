import pytest

from murmuration.preference.kinds.array_examples import ArrayExamples


def test_nothing_is_batched_declared_or_learned_first():
    examples = ArrayExamples()
    assert examples.in_public() is examples
    assert examples.in_batches(3) is examples
    with pytest.raises(ValueError, match="no head to learn first"):
        examples.of_head()
    assert not (examples.measures_loss or examples.measures_personal or examples.choices)
