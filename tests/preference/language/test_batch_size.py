"""Sizes of batches: from what two passes take, and from nothing that anybody has."""

import pytest
from language_models import model_on

from murmuration.preference.data.schema import PAIRS
from murmuration.preference.language import batch_size
from murmuration.preference.language.base.network import LanguageBase, language_base
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.batch_size import fitting_batch
from murmuration.preference.models import preference_model

BTL = preference_model("btl")
ALWAYS, EACH = 10_000, 500


@pytest.fixture
def two(language_model):
    """A function: made-up users of two sizes, and how many tokens they have."""

    def make(task="reward", kind="gpt2", **settings):
        base = LanguageBase(BaseSettings(language_model(kind), rank=2, task=task, **settings))
        return [model_on(base).longest_examples(PAIRS, most) for most in (1, 2)]

    return make


def measured(two, free, tokens=()):
    """As if a token took so many bytes: those of the texts that went through the network, but for
    the few on which it is tried what its head is.
    """
    seen = list(tokens)

    def taken(work):
        base = two[0].base
        embedded = base.model.get_input_embeddings().register_forward_hook(
            lambda _, args, __: seen.extend([args[0].numel()] if args[0].numel() > 16 else [])
        )
        work()
        embedded.remove()
        return ALWAYS + EACH * seen[-1]

    return fitting_batch(*two, BTL, taken=taken, free=free), seen


@pytest.mark.parametrize("task", ["reward", "text", "sft"])
def test_what_fits_is_a_batch(two, task):
    both = two(task)
    found, seen = measured(both, 100_000)
    assert found == int((0.8 * 100_000 - ALWAYS) / EACH)
    assert len(seen) == 2  # each size in one batch, though together they are more than fits
    assert seen[1] == 2 * seen[0] == 2 * 64 * (1 if task == "text" else 2)
    assert measured(both, 10**12)[0] == 2048  # never more than on any processor so far
    assert measured(both, 0)[0] == 1  # a batch is one example at least


def test_a_network_of_which_nothing_is_kept_takes_what_suits_the_device(two):
    assert fitting_batch(*two(), BTL, taken=lambda work: 5, free=1000) == 2048


def test_on_a_processor_it_is_what_the_network_keeps(two):
    """Twice the layers keep about twice as much, recomputed blocks less, and shorter types less."""

    def each(**settings):
        small, large = two(kind="llama", **settings)
        kept, sizes = [], (128, 256)
        measure = batch_size.kept_for_backward(small.base)
        for examples, tokens in ((small, 128), (large, 256)):
            whole = examples.in_batches(tokens)
            kept.append(measure(lambda whole=whole: batch_size.forward_and_back(whole, BTL)))
        return (kept[1] - kept[0]) / (sizes[1] - sizes[0])

    plain = each()
    assert 2 * 16 * 4 < plain < 10_000  # at least what comes into both blocks
    assert each() == plain
    assert each(checkpointing=True) < 0.5 * plain
    assert each(dtype="bfloat16") < 0.9 * plain


def test_a_small_machine_takes_less_at_a_time(two, monkeypatch):
    class Memory:
        total = 2 * (512 * 2**20 + 2**20)  # of half of it, rows leave a MiB

    assert fitting_batch(*two(), BTL) == 2048
    monkeypatch.setattr(batch_size.psutil, "virtual_memory", lambda: Memory)
    found = fitting_batch(*two(), BTL)
    assert 1 < found < 2048
    assert fitting_batch(*two(), BTL) == found
    assert fitting_batch(*two(checkpointing=True), BTL) > found


def test_sizes_are_of_one_network(two):
    base = two()[0].base
    other = base.in_batches(99)
    assert (other.batch_tokens, base.batch_tokens) == (99, 2048)
    assert other.model is base.model
    assert other.in_batches(0) is base
    assert other is base.in_batches(99)
    assert other.to_config() == {**base.to_config(), "batch_tokens": 99}
    described = {**base.to_config(), "batch_tokens": 7}
    one, two_ = (language_base(described | {"batch_tokens": n}) for n in (7, 8))
    assert one.model is two_.model
    assert (one.batch_tokens, two_.batch_tokens) == (7, 8)
