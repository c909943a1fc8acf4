"""In which script and language texts are, by letters and frequent words."""

from collections import Counter

import pytest

from murmuration.preference.features.languages import (
    CHARACTERS,
    LANGUAGES,
    NO_LETTERS,
    UNCLEAR,
    language_of,
    script_of,
)
from murmuration.sims.population import population

SENTENCES = {
    "English": ["Do put it aside before a bonus comes.", "Should you do that? It is as it was.",
                "No one can do it on my own as we do."],
    "German": ["Das ist nicht gut, und ich bin es auch nicht."],
    "French": ["Il ne faut pas que les enfants soient dans la rue."],
    "Spanish": ["No es lo que los otros con las manos hacen por una vez."],
    "Portuguese": ["Não é o que os outros fazem com uma parte da vida."],
    "Italian": ["Non è il momento che la gente di qui sono per gli altri."],
    "Dutch": ["Het is niet de tijd van een man die op zijn werk is."],
}  # fmt: skip


def test_languages_are_told_apart_by_two_words_at_least():
    assert {*SENTENCES, UNCLEAR} == {*LANGUAGES}
    for language, texts in SENTENCES.items():
        assert {language_of(text) for text in texts} <= {language, UNCLEAR}, language
        assert language_of(texts[-1]) == language
    assert language_of("Do it.") == UNCLEAR


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Кошка и собака", "Cyrillic"),
        ("ok, собака", "Cyrillic"),
        ("猫", "Cjk"),
        ("12 + 3", NO_LETTERS),
        ("", NO_LETTERS),
        ("\U000e1000\ud800", NO_LETTERS),
    ],
)
def test_a_script_is_that_of_most_letters(text, script):
    assert script_of(text) == script


def test_a_text_without_end_is_looked_at_where_it_begins():
    assert script_of("a" * CHARACTERS + "я" * 10**6) == "Latin"
    assert language_of("der " * CHARACTERS + " the and is you" * 10**5) == language_of("der der")


def test_english_is_not_taken_for_portuguese():
    rows = population.test()
    found = Counter(language_of(row[name]) for row in rows for name in ("prompt", "chosen"))
    assert found["English"] > 0.9 * found.total()
    assert found["Portuguese"] < 0.001 * found.total()
