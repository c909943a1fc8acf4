"""Ids: one person must not pass for several by characters that nobody sees."""

import math
import uuid

import numpy as np
import pytest

from murmuration.preference.data.errors import BadRow, InputError
from murmuration.preference.data.judgements import Judgements
from murmuration.preference.data.texts import UserTexts
from murmuration.preference.data.user_ids import MOST_CHARACTERS, user_cell

UUID = uuid.UUID(int=2**128 - 1)
#: Spellings that a terminal or a page shows as `Zoë B`, or nearly so.
LOOK_ALIKES = {
    "zero-width space inside": "Zo\u200bë B",
    "zero-width joiner inside": "Zo\u200dë B",
    "zero-width non-joiner inside": "Zo\u200cë B",
    "word joiner inside": "Zo\u2060ë B",
    "byte order mark before": "\ufeffZoë B",
    "left-to-right mark after": "Zoë B\u200e",
    "right-to-left mark inside": "Zoë\u200f B",
    "bidi override inside": "Zo\u202dë\u202c B",
    "bidi isolate inside": "Zo\u2068ë\u2069 B",
    "soft hyphen": "Zo\u00adë B",
    "no-break space": "Zoë\u00a0B",
    "two spaces": "Zoë  B",
    "ideographic space": "Zoë\u3000B",
    "variation selector": "Zoë\ufe0f B",
    "variation selector supplement": "Zoë\U000e0100 B",
    "combining grapheme joiner": "Zo\u034fë B",
    "Hangul filler": "Zoë\u3164B",
    "half-width Hangul filler": "Zoë B\uffa0",
    "Hangul jamo filler": "Zoë\u115fB",
    "braille blank": "Zoë\u2800B",
    "tag character": "Zoë B\U000e0041",
    "musical null notehead": "Zoë B\U0001d159",
    "hieroglyphic full blank": "Zoë\U00013441B",
    "hieroglyphic half blank": "Zoë\U00013442B",
    "hieroglyphic mirror": "Zoë\U00013440 B",
    "Mongolian vowel separator": "Zo\u180eë B",
    "invisible times": "Zo\u2062ë B",
    "full-width letter": "Zoë Ｂ",
    "control character": "Zo\x1bë B",
    "line break": "Zoë\nB",
    "Cyrillic o": "Z\u043eë B",
    "Greek B": "Zoë \u0392",
    "private use": "Zoë B\ue000",
}


@pytest.mark.parametrize("spelling", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_a_look_alike_is_no_second_user(spelling):
    rows = [
        {"user_id": user, "prompt": "p", "chosen": "a", "rejected": "b", "text": "t"}
        for user in ("Zoë B", spelling)
    ]
    for kind in (Judgements, UserTexts):
        with pytest.raises(InputError, match="'user_id' is no user id") as refused:
            kind.from_placed_rows([("f", n, row) for n, row in enumerate(rows, 1)])
        assert str(refused.value).startswith("f:2: ") and str(refused.value).isprintable()
        left = kind.from_placed_rows(
            [("f", n, row) for n, row in enumerate(rows, 1)], on_bad_rows="isolate"
        )
        assert (left.user_ids, left.left_out) == (("Zoë B",), 1)


@pytest.mark.parametrize(
    "name",
    ["Ann Lee", "O’Brien", "O'Brien", "😀", "👍🏽", "🇩🇪", "José", "日本 太郎", "Иван", "Γιώργος",
     "a@b.org", "rev_7-x", "अनिल", "ใจดี", "محمد",
     # What only resembles what programs make of ids.
     "1e5", "12E3", "Nat", "Null", "Inf", "[deleted]", "'t Hooft", "3-1", "1.2.3.4", "Mar-1"],
)  # fmt: skip
def test_names_pass_as_they_are(name):
    assert user_cell(name, "user_id") == name


@pytest.mark.parametrize(
    ("value", "name"),
    [(7, "7"), (7.0, "7"), ("7", "7"), (np.int64(7), "7"), (np.float32(7.5), "7.5"), ("007", "7"),
     ("7.", "7"), ("-0.0", "0"), ("9" * 30, "9" * 30), ("0" * 20 + "7.0", "7"), ("٧", "٧"),
     ("９", None), ("9" * 20 + ".0", None), ("9" * 5_000, None),
     (True, None), (math.nan, None), (math.inf, None), (None, None), ([1], None),
     (b"u", None), (7.5, "7.5"), (2.0**53 - 1, str(2**53 - 1)), (2.0**53, None),
     (0, "0"), ("", None), ("\u200b", None), ("٧\u200f", None),
     # Blanks around, accents written in two ways, and a UUID in either case are one user.
     ("Zoe\u0308 B", "Zoë B"), (" Zoë B", "Zoë B"), ("Zoë B\t", "Zoë B"),
     ("\u00a0Zoë B\u2003", "Zoë B"), (str(UUID).upper(), str(UUID)), (str(UUID), str(UUID))],
)  # fmt: skip
def test_ids_are_what_they_mean(value, name):
    if name is not None:
        assert user_cell(value, "user_id") == name
        return
    with pytest.raises(BadRow, match="'user_id'"):
        user_cell(value, "user_id")


@pytest.mark.parametrize(
    "text",
    ["1e+18", "1.23457E+09", "1,23E+09", "5E-05", "nan", "NaN", "NA", "None", "null", "<NA>", "inf",
     "True", "false", "2024-03-01", "2024-03-01 00:00:00", "2024-03-01T00:00:00Z", "3/1/2024",
     "1-Mar", "1-Mar-24", "Mar-01", "'007", '="007"', '"u1"', "'u1'", "b'u1'", "['u1']", '["u1"]',
     "('u1',)", "{'id': 'u1'}", "UUID('1')", "np.str_('u1')"],
)  # fmt: skip
def test_what_programs_make_of_ids_is_nobody(text):
    with pytest.raises(BadRow, match=r"'user_id' is no user id: it is .*write ids as plain text"):
        user_cell(f" {text}", "user_id")


def test_upper_case_and_whole_scripts_are_not_caught():
    """What the documentation says: `A` in Cyrillic alone, and another case, are other users."""
    names = ["ANN", "ann", "Ann", "АВС", "ABC"]
    assert len({user_cell(name, "user_id") for name in names}) == len(names)


def test_an_id_is_not_endless():
    assert user_cell("é" * MOST_CHARACTERS, "user_id")
    for letter in "eé":
        with pytest.raises(BadRow, match="longer than 1,000 characters"):
            user_cell(letter * (MOST_CHARACTERS + 1), "user_id")
