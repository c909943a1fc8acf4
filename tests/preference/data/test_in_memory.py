"""Rows in memory on their way: nothing of them stands in what is said of them."""

import traceback
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from murmuration import InputError, RewardModel, train
from murmuration.preference.data.files.columnar_child import NOT_OF_JSON
from murmuration.preference.data.in_memory import located_rows
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.loading import load_judgements
from murmuration.preference.features.hashing import HashingFeatures

SECRET = "Xantippe7"
GOOD = {"user_id": "u1", "prompt": "What?", "chosen": "Save it.", "rejected": "Spend it."}
#: One bad cell each, which holds somebody's words.
BAD = {
    "text where a flag is": {**GOOD, "tie": SECRET},
    "a list where text is": {**GOOD, "chosen": [SECRET]},
    "a number and words": {**GOOD, "chosen": None, "prompt": SECRET},
    "a role that there is not": {**GOOD, "chosen": [{"role": SECRET, "content": SECRET}]},
    "a message without text": {**GOOD, "chosen": [{"role": "assistant", "content": {SECRET: 1}}]},
    "a score": {**GOOD, "score_chosen": SECRET, "score_rejected": 1},
    "a user": {**GOOD, "user_id": f"{SECRET}\u200b"},
    "a user in two scripts": {**GOOD, "user_id": f"{SECRET}\u0430"},
    "a user that looks like another": {**GOOD, "user_id": f"{SECRET}\uff01"},
    "half a character": {**GOOD, "rejected": f"{SECRET}\ud800"},
    "equal texts": {"user_id": "u1", "chosen": SECRET, "rejected": SECRET},
}


@pytest.mark.parametrize("what", BAD)
def test_no_words_of_a_row_stand_in_an_exception(what, tmp_path):
    with pytest.raises(InputError) as refused:
        train([GOOD, BAD[what]], out=tmp_path / "r", delta=1e-3, rounds=2, cohort=1, seed=1)
    assert SECRET not in "".join(traceback.format_exception(refused.value))
    for error in (refused.value, refused.value.__cause__, refused.value.__context__):
        assert SECRET not in f"{error!r} {vars(error) if error else ''}"


def test_no_words_of_a_row_stand_in_a_repr():
    row = {**GOOD, "user_id": SECRET, "chosen": SECRET}
    assert repr(Judgements.from_rows([row])) == "Judgements(1 pairs of 1 users)"


def test_rows_are_in_a_file_as_long_as_it_takes():
    with located_rows([GOOD]) as place:
        assert Path(place).is_file()
        assert Path(place).parent.stat().st_mode & 0o077 == 0
    assert not Path(place).exists()


@pytest.fixture
def model():
    theta_D = [0.0] * 64 + [1.0]  # the longer, the better
    return RewardModel(theta_D, HashingFeatures(dimension=65, length="log"))


def test_accuracy_of_rows_and_of_a_file_with_them(model, tmp_path):
    longer = {**GOOD, "chosen": "Save it, and then some more of it."}
    rows = [longer, {**GOOD, "chosen": longer["rejected"], "rejected": longer["chosen"]}, longer]
    (tmp_path / "rows.jsonl").write_text("".join(f"{row}\n".replace("'", '"') for row in rows))
    of_rows, of_file = model.accuracy(rows), model.accuracy(tmp_path / "rows.jsonl")
    assert of_rows == of_file == model.accuracy(Judgements.from_rows(rows))
    assert of_rows.pooled == pytest.approx(2 / 3)
    renamed = [{"who" if name == "user_id" else name: row[name] for name in row} for row in rows]
    assert model.accuracy(renamed, columns="user_id=who") == of_rows


def test_accuracy_of_declared_rows(model):
    thumbs = [
        {"user_id": "u1", "prompt": "p", "completion": "Keep all of it, please.", "label": True},
        {"user_id": "u1", "prompt": "p", "completion": "No.", "label": False},
    ]
    assert model.accuracy(thumbs, kind="thumbs").pooled == 1.0
    of_thumbs = RewardModel(model.theta_D, model.features, "thumbs")
    assert of_thumbs.accuracy(thumbs) == model.accuracy(thumbs, kind="thumbs")
    with pytest.raises(InputError, match="rows cannot be declared 'knid'"):
        model.accuracy(thumbs, knid="thumbs")
    with pytest.raises(InputError, match="every judgement is a tie"):
        model.accuracy([{**GOOD, "tie": True}])


def test_ids_of_data_bases_are_read():
    """A UUID is its text, a whole Decimal its number; others are bad rows, by their numbers."""
    ids = [UUID(int=7), Decimal(7), Decimal("7.0"), 7.0]
    with located_rows([{**GOOD, "user_id": each} for each in ids]) as place:
        read = load_judgements(place)
    assert read.user_ids == (str(UUID(int=7)), "7") and read.counts_U.tolist() == [1, 3]
    for odd in ("7.5", "Infinity", "sNaN", "1E+999999999"):
        rows = [GOOD, {**GOOD, "user_id": Decimal(odd)}]
        with pytest.raises(InputError, match=r"^data, row 2: 'user_id'"), located_rows(rows) as at:
            load_judgements(at)


@pytest.mark.parametrize(
    ("odd", "kind"),
    [
        (datetime(2024, 1, 1), "datetime"),
        (np.datetime64(1, "ns"), "datetime64"),
        (b"u1", "bytes"),
        ({1, 2}, "set"),
        (Decimal("7.5"), "Decimal"),
    ],
)
def test_an_odd_cell_is_named_by_its_row_and_type(odd, kind):
    for place in ({"user_id": odd}, {"chosen": odd}):
        with (
            pytest.raises(InputError, match=rf"^data, row 2: .* {kind}$"),
            located_rows([GOOD, {**GOOD, **place}]) as at,
        ):
            load_judgements(at)


@pytest.mark.parametrize("words", ["My own words.", "w" * 50, ["w"]])
def test_nobody_writes_words_as_a_type(words):
    rows = [{**GOOD, "user_id": {NOT_OF_JSON: words}}]
    with (
        pytest.raises(InputError, match=r"found a value of another type$"),
        located_rows(rows) as at,
    ):
        load_judgements(at)


def test_a_missing_id_makes_no_two_people_one():
    """Whole numbers of which one is missing are floats, which lose digits from 2⁵³ on."""
    pandas = pytest.importorskip("pandas")
    ids = [2**53, 2**53 + 1, 5, None]
    frame = pandas.DataFrame([{**GOOD, "user_id": each} for each in ids])
    with located_rows(frame) as place:
        read = load_judgements(place, on_bad_rows="skip")
    assert (read.user_ids, read.left_out) == (("5",), 3)
