"""References that were computed before: the same bits, or computed anew; and nothing is kept
unasked."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from damage import no_file_above
from language_models import model_on, start, taken

from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.schema import PAIRS
from murmuration.preference.language.base.network import LanguageBase
from murmuration.preference.language.base.settings import BaseSettings
from murmuration.preference.language.examples.policies import PolicyExamples
from murmuration.preference.language.reference_cache import References
from murmuration.preference.language.row_cache import FOLDER
from murmuration.preference.language.tokens import Tokens
from murmuration.preference.models import preference_model

COUNTS = [3, 1, 4]


def made_up(texts=12, first=5):
    """Tokens of texts of five words, each its own."""
    ids = first + torch.arange(5 * texts, dtype=torch.int32)
    return Tokens(ids, 5 * np.arange(texts + 1), np.full(texts, 2), 0)


class Computing:
    """A likelihood that has all digits, and how often it was computed."""

    def __init__(self, tokens, fails_at=None):
        self.tokens, self.fails_at, self.computed = tokens, fails_at, []

    def __call__(self, texts_R):
        if self.fails_at in texts_R:
            raise RuntimeError("out of memory")
        self.computed += texts_R.tolist()
        return np.array([-1.0 / (1 + len(texts_R) + int(self.tokens.ids[5 * t])) for t in texts_R])


def each(texts):
    return np.split(np.arange(texts), texts)


def computed(kept, tokens, batches):
    """Which texts were computed; what comes of all is right."""
    compute, expected = Computing(tokens), Computing(tokens)
    for some_R, log_R in kept.of(tokens, batches, compute):
        assert np.array_equal(log_R, expected(some_R))
    assert sorted(expected.computed) == sorted(np.concatenate(batches).tolist())
    return compute.computed


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "kept"


def test_what_is_known_is_not_computed(folder):
    tokens = made_up()
    kept = References(folder, "a network")
    assert computed(kept, tokens, each(5)) == [*range(5)]
    assert computed(kept, tokens, each(7)) == [5, 6]
    assert computed(References(folder, "a network"), tokens, each(9)) == [7, 8]
    assert not computed(References(folder, "a network"), tokens, each(9))


def test_whatever_a_likelihood_depends_on_it_is_computed_for(folder):
    tokens, every = made_up(), [*range(12)]
    computed(References(folder, "a network"), tokens, each(12))
    assert computed(References(folder, "another"), tokens, each(12)) == every
    scored = Tokens(tokens.ids, tokens.start_T, tokens.second_T + 1, 0)
    assert computed(References(folder, "a network"), scored, each(12)) == every
    longer = Tokens(tokens.ids, np.array([0, 6, 10]), tokens.second_T[:2], 0)
    assert computed(References(folder, "a network"), longer, each(1)) == [0]


def test_a_text_is_found_wherever_it_stands(folder):
    tokens = made_up()
    computed(References(folder, "a network"), tokens, each(12))
    later = Tokens(tokens.ids[10:], tokens.start_T[:-2], tokens.second_T[2:], 0)
    assert not computed(References(folder, "a network"), later, each(10))


def test_texts_that_shared_a_batch_are_known_for_that_batch_alone(folder):
    tokens = made_up()
    together = [np.array([3, 1, 2])]
    computed(References(folder, "a network"), tokens, each(4))
    assert computed(References(folder, "a network"), tokens, together) == [3, 1, 2]
    assert not computed(References(folder, "a network"), tokens, together)
    assert computed(References(folder, "a network"), tokens, [np.array([1, 2, 3])]) == [1, 2, 3]
    assert not computed(References(folder, "a network"), tokens, each(4))


def test_who_is_ended_half_way_keeps_what_was_computed(folder):
    tokens, compute = made_up(), Computing(made_up(), fails_at=7)
    with pytest.raises(RuntimeError):
        for _ in References(folder, "a network").of(tokens, each(12), compute):
            pass
    assert computed(References(folder, "a network"), tokens, each(12)) == [*range(7, 12)]


_PROCESS = """
import os, sys
from pathlib import Path
import numpy as np
from murmuration.preference.language.reference_cache import References
from tests.preference.language.test_reference_cache import Computing, made_up

folder, first, killed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
tokens, at_a_time = made_up(2500), 2500 if killed else 50
texts = np.roll(np.arange(2500), -first)
for part in np.split(texts, 2500 // at_a_time):
    kept = References(folder, "a network").of(tokens, np.split(part, len(part)), Computing(tokens))
    for place, _ in enumerate(kept):
        if killed and place == killed:
            os._exit(9)
"""


def process(folder, first, killed=0):
    asked = [sys.executable, "-c", _PROCESS, str(folder), str(first), str(killed)]
    root = Path(__file__).parents[3]
    modules = os.pathsep.join(map(str, (root, root / "tests" / "shared")))
    return subprocess.Popen(
        asked, cwd=root, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": modules}
    )


def test_who_is_killed_leaves_whole_files(folder, caplog):
    assert process(folder, 0, killed=2100).wait() == 9
    found = computed(References(folder, "a network"), made_up(2500), each(2500))
    assert 0 < len(found) < 2500 - 1000 and not caplog.text


def test_several_processes_at_a_time(folder, caplog):
    several = [process(folder, first) for first in (0, 25, 1250)]
    for one in several:
        _, said = one.communicate()
        assert one.returncode == 0 and not said
    assert not computed(References(folder, "a network"), made_up(2500), each(2500))
    assert not caplog.text
    assert not [file for file in folder.iterdir() if file.name.startswith(".")]


def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    kept = References(tmp_path / "file" / "kept", "a network")
    for text in range(1, 40):
        assert computed(kept, made_up(40), each(40)[:text]) == [text - 1]
    assert caplog.text.count("cannot be kept") == 1


def test_a_full_disk_stops_nothing(folder, caplog):
    tokens = made_up(40)
    computed(References(folder, "a network"), tokens, each(3))
    with no_file_above(150):
        kept = References(folder, "a network")
        found = [computed(kept, tokens, each(40)) for _ in range(2)]
    assert found == [[*range(3, 40)], []]
    assert "cannot be kept" in caplog.text
    assert len([*folder.iterdir()]) == 1
    assert computed(References(folder, "a network"), tokens, each(40)) == [*range(3, 40)]


def test_what_is_no_number_is_not_kept(folder):
    tokens = made_up()
    nothing = lambda some_R: np.full(len(some_R), np.nan)  # noqa: E731
    assert all(np.isnan(log) for _, log in References(folder, "a").of(tokens, each(5), nothing))
    assert computed(References(folder, "a"), tokens, each(5)) == [*range(5)]


# Of a policy.


@pytest.fixture
def made(language_model, make_rows):
    """A function: examples of three users on a base that was just loaded."""

    def make(rows=None, kind="gpt2", train="lora", **settings):
        given = {"task": "policy", "rank": 2, "loss": "dpo", **settings}
        base = LanguageBase(BaseSettings(language_model(kind), train, **given))
        return policies(Judgements.from_rows(rows or make_rows(COUNTS)), base)

    return make


def policies(judgements, base):
    """Examples that know what files know, and nothing else of this process."""
    examples = model_on(base).examples(judgements)
    assert isinstance(examples, PolicyExamples)
    if named := os.environ.get(FOLDER):
        kept = References(Path(named), base.reference_terms)
        examples = replace(examples, kept=kept)
    return examples


def vectors(examples, together=False):
    """All users' gradients, and how many texts went through the reference."""
    texts, model = [], preference_model("btl")

    def count(module, args, kwargs):
        if not torch.is_grad_enabled():
            texts.append((args or list(kwargs.values()))[0].shape[0])

    examples.base.states(examples.tokens, np.array([0]))  # the first call tries the network out
    handle = examples.base.model.get_input_embeddings().register_forward_pre_hook(
        count, with_kwargs=True
    )
    found = examples.user_gradients(
        start(examples.base), *taken(examples), model, shared_passes=together
    )
    found = torch.cat([rows.clone() for rows in found])
    handle.remove()
    return found, sum(texts)


@pytest.fixture
def cached(folder, monkeypatch):
    monkeypatch.setenv(FOLDER, str(folder))
    return folder


def plainly(make, *args, **more):
    """Without any folder, what comes of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(FOLDER, raising=False)
        return vectors(make(*args), **more)


@pytest.mark.parametrize("train", ["lora", "full"])
@pytest.mark.parametrize("together", [False, True])
def test_a_second_run_computes_no_reference_and_gets_the_same_bits(made, cached, together, train):
    make = lambda: made(train=train)  # noqa: E731
    expected, all_of_them = plainly(make, together=together)
    first, computed = vectors(make(), together)
    again, rest = vectors(make(), together)
    assert computed == all_of_them > 0 == rest
    assert torch.equal(first, expected) and torch.equal(again, expected)


def test_texts_by_themselves_are_not_taken_for_those_of_a_batch(made, cached):
    alone, _ = plainly(made)
    together, _ = plainly(made, together=True)
    for _ in range(2):
        assert torch.equal(vectors(made())[0], alone)
        assert torch.equal(vectors(made(), True)[0], together)


def test_settings_of_the_loss_share_a_reference(made, cached):
    vectors(made())
    assert vectors(made(loss="square-chipo", beta=0.7, r_max=1.0, batch_tokens=40))[1] == 0


def test_a_user_is_the_same_whosever_texts_are_known(made, cached, make_rows):
    rows = make_rows(COUNTS)
    mine = [row for row in rows if row["user_id"] == rows[0]["user_id"]]
    shared = [{**row, "user_id": "another"} for row in mine[:1]]
    shared += [{**mine[0], "user_id": "another", "chosen": mine[0]["rejected"],
                "rejected": "spend all of it"}]  # fmt: skip
    expected, _ = plainly(made, mine)
    vectors(made([*shared, *rows[3:]]))
    found, computed = vectors(made(mine))
    assert torch.equal(found, expected)
    assert 0 < computed < plainly(made, mine)[1]


def test_made_up_texts_are_tried_out_in_full_and_not_kept(made, cached):
    base = made(batch_tokens=200, max_tokens=20).base
    for _ in range(2):
        examples = model_on(base).largest_batch(PAIRS)
        assert isinstance(examples, PolicyExamples) and vectors(examples)[1] == 6
    assert not [*cached.glob("*.references")]
