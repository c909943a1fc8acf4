from murmuration.preference.kinds.array_examples import ArrayExamples


def test_nothing_is_batched_or_declared():
    examples = ArrayExamples()
    assert examples.in_public() is examples
    assert examples.in_batches(3) is examples
    assert not examples.measures_loss
