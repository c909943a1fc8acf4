"""Words by blanks, and letters where a script has none."""

import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from murmuration.preference.features.languages import script_of
from murmuration.preference.features.words import (
    HASHED,
    WITHOUT_BLANKS,
    has_no_blanks,
    unbroken,
    words_of,
)

#: Letters that Unicode names by another thing than their script.
_NAMED_OTHERWISE = {"Halfwidth", "Hentaigana", "Ideographic", "Katakana-hiragana", "Masu",
                    "Vertical"}  # fmt: skip


def hashed(text):
    return re.findall(HASHED, text)


def test_the_letters_are_those_of_the_scripts_that_are_named():
    """Whatever this Python's Unicode knows; no vowel sign is one, and no Hangul."""
    letters = filter(str.isalpha, map(chr, range(0x80, sys.maxunicode + 1)))
    scripts = {True: set(), False: set()}
    for letter in letters:
        scripts[has_no_blanks(letter)].add(script_of(letter))
    assert scripts[True] - _NAMED_OTHERWISE == WITHOUT_BLANKS
    assert not scripts[False] & WITHOUT_BLANKS


def test_signs_stay_with_their_letter():
    """Of each of these scripts, whatever signs it has."""
    signs = [c for c in map(chr, range(0x0E00, 0x1800)) if unicodedata.category(c) in ("Mn", "Mc")]
    letters = {"THAI": "ก", "LAO": "ກ", "MYANMAR": "က", "KHMER": "ក"}
    tried = 0
    for sign in signs:
        if letter := letters.get(unicodedata.name(sign).split()[0]):
            assert words_of(letter + sign + letter) == [letter + sign, letter]
            assert hashed(letter + sign + letter) == [letter + sign, letter]
            tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("text", "words", "ngrams"),
    [
        ("先存起来。", "先 存 起 来。", "先 存 起 来"),
        ("「好」ok「好」ok", "「好」 ok 「好」 ok", "好 ok 好 ok"),
        ("今天，明天", "今 天， 明 天", "今 天 明 天"),
        ("我说「好」！", "我 说「 好」！", "我 说 好"),
        ("用Python写2024年的x", "用 Python 写 2024 年 的 x", "用 Python 写 2024 年 的"),
        ("好 。 😀", "好 。 😀", "好"),
        ("好。😀", "好。😀", "好"),
        ("スーパーへ行く", "ス ー パ ー へ 行 く", "ス ー パ ー へ 行 く"),
        ("ดีมาก ok", "ดี ม า ก ok", "ดี ม า ก ok"),
        ("돈을 먼저 저축해", "돈을 먼저 저축해", "돈을 먼저 저축해"),
        ("don’t — so it is", "don’t — so it is", "don so it is"),
        ("１００円", "１００ 円", "１００ 円"),
    ],
)
def test_words(text, words, ngrams):
    assert words_of(text) == words.split(" ")
    assert hashed(text) == ngrams.split(" ")


_elsewhere = st.text(
    st.characters(exclude_categories=["Cs"]).filter(lambda c: not has_no_blanks(c))
)
_mixed = st.text("ab .。「é字が๑ดี\u0e49돈\u200b\U0001f600\n", max_size=30)


@given(_elsewhere)
def test_other_scripts_are_as_they_were(text):
    """With blanks, and as scikit-learn finds words."""
    assert words_of(text) == text.split()
    assert hashed(text) == re.findall(r"(?u)\b\w\w+\b", text)
    assert unbroken(text) == re.findall(r"\w+", text)


@given(_mixed, _mixed)
def test_words_depend_on_their_own_part_alone(one, other):
    assert words_of(f"{one} {other}") == words_of(one) + words_of(other)
    assert "".join(words_of(one)) == "".join(one.split())  # nothing is lost
    assert hashed(f"{one} {other}") == hashed(one) + hashed(other)


def test_marks_without_end_are_read_in_one_pass():
    marks = "—" * 300_000
    assert words_of(f"{marks}字{marks}字{marks}") == [f"{marks}字{marks}", f"字{marks}"]
    assert words_of(f"字 {marks}a") == ["字", f"{marks}a"]


def test_phrases_are_what_no_mark_or_other_script_interrupts():
    assert unbroken("买房, เงินเดือน x買2年") == ["买房", "เงินเดือน", "x", "買", "2", "年"]
    assert unbroken("❤️ ok") == ["ok"]
