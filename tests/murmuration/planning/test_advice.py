"""What suits a crowd of a given size, and which accuracy was measured elsewhere."""

import re
from pathlib import Path

import pytest

from murmuration.planning import advice
from murmuration.preference.features.languages import NO_LETTERS, script_of
from murmuration.preference.features.words import HASHED, words_of
from murmuration.preference.language.checkpoint import minilm_folder
from murmuration.research.reproductions import accuracy_by_users

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("people", "epsilon", "faster"),
    [(100, 8.0, "minilm"), (500, 3.0, "minilm"), (1000, 3.0, "minilm"), (2700, 1.0, "minilm"),
     (2700, 3.0, "hashing"), (2700, 8.0, "hashing"), (50_000, 1.0, "hashing")],
)  # fmt: skip
def test_states_of_smollm2_and_what_is_faster(people, epsilon, faster):
    """As it was measured."""
    assert advice.features_for(people, epsilon).names[:2] == ("smollm2", faster)


def test_more_people_or_budget_never_ask_for_an_encoder_again():
    names = [advice.features_for(people, 1.0).names[1] for people in range(100, 30_000, 100)]
    assert names == sorted(names, reverse=True) and len(set(names)) == 2


def test_a_start_is_named_to_few_people_alone():
    said = advice.start_for(70, 2.0)
    assert "--start length" in said and "public reward" in said
    assert advice.start_for(49, 3.0) and advice.start_for(149, 1.0)
    for users, epsilon in ((50, 3.0), (150, 1.0), (2000, 8.0)):
        assert advice.start_for(users, epsilon) == ""


@pytest.mark.parametrize("users", [1, 9, 171, 10_000, 10_001, 2_345_678])
def test_delta_is_well_below_one_over_users(users):
    delta = advice.delta_for(users)
    assert delta <= min(1e-5, 0.1 / users)
    assert delta == 1e-5 or delta * 10 > 0.1 / users  # not smaller than it need be


def test_round_figures():
    found = [advice.users_to_train_on(users, 0.0) for users in (0, 1, 99, 137, 1742, 45_678)]
    assert found == [1, 1, 100, 140, 1700, 46_000]


def test_a_small_number_is_rounded_too():
    found = [advice.users_to_train_on(users, 0.0) for users in (4, 8, 11, 28, 81)]
    assert found == [5, 10, 10, 30, 80]


#: A sentence in each script, and whether the vocabulary of minilm has most of its letters.
SENTENCES = {
    "先存起来再等一等，这个月应该修好旧的冰箱": False,
    "まずはちょっと貯金をしておきましょう": False,
    "スマートフォンをチェック": False,
    "ควรเก็บเงินไว้ก่อน": False,
    "ຄວນເກັບເງິນໄວ້ກ່ອນ": False,
    "គួរសន្សំប្រាក់ជាមុន": False,
    "ပိုက်ဆံစုပါ": False,
    "தமிழ் மொழி": False,
    "తెలుగు భాష": False,
    "ਪੰਜਾਬੀ ਭਾਸ਼ਾ": False,
    "ગુજરાતી ભાષા": False,
    "ಕನ್ನಡ ಭಾಷೆ": False,
    "മലയാളം ഭാഷ": False,
    "සිංහල භාෂාව": False,
    "አማርኛ ቋንቋ": False,
    "Save it before some bonus comes": True,
    "Сначала отложите деньги": True,
    "Πρώτα βάλε στην άκρη χρήματα": True,
    "اللغة العربية": True,
    "שפה עברית": True,
    "Հայերեն": True,
    "पैसे बचाकर रखना चाहिए": True,
    "বাংলা ভাষা": True,
    "돈을 먼저 저축하세요": True,
}


def unread_by_minilm(script):
    return [line for line in advice.reading({script: 1}) if line.startswith("minilm")]


@pytest.mark.skipif(minilm_folder() is None, reason="needs the extra minilm")
@pytest.mark.parametrize(("sentence", "known"), SENTENCES.items())
def test_what_minilm_cannot_read_is_what_its_vocabulary_lacks(sentence, known):
    from transformers import AutoTokenizer

    pieces = AutoTokenizer.from_pretrained(minilm_folder()).tokenize(sentence)
    assert (2 * pieces.count("[UNK]") < len(pieces)) == known
    assert bool(unread_by_minilm(script_of(sentence))) != known


@pytest.mark.parametrize("sentence", SENTENCES)
def test_what_hashing_does_with_a_script(sentence):
    """Letters for words, pieces for words, or words."""
    script, blanks = script_of(sentence), sentence.split()
    letters = len(words_of(sentence)) > len(blanks)
    pieces = not letters and re.findall(HASHED, sentence) != blanks
    lines = [line for line in advice.reading({script: 1}) if line.startswith("hashing")]
    assert [script in line for line in lines] == [True] * (letters or pieces)
    assert all(("cuts" in line) == pieces for line in lines)


def test_scripts_of_few_texts_are_not_named():
    assert advice.reading({"Latin": 97, "Cjk": 3}) == []
    lines = advice.reading({"Latin": 80, "Thai": 8, "Cjk": 7, NO_LETTERS: 5})
    assert all("Cjk, Thai" in line for line in lines) and len(lines) == 2
    assert len(advice.reading({NO_LETTERS: 1})) == 1


def test_hashing_is_advised_for_texts_that_encoders_cannot_read():
    assert advice.features_for(100, 1.0, {"Latin": 60, "Thai": 40}).names[0] == "smollm2"
    assert advice.features_for(100, 1.0, {"Latin": 40, "Thai": 60}).names == ("hashing",)
    assert advice.features_for(100, 1.0, {}).names[0] == "smollm2"


def test_bands_run_from_the_least_to_the_largest_crowd():
    bands = advice.accuracies()
    assert [row["users"] for row in bands] == ["100", "500", "1,000", "2,500–2,700"]
    assert bands[0] == {"users": "100", "1": "55–59 %", "3": "62–64 %", "8": "67 %"}
    assert bands[-1]["3"] == "75–76 %"


def test_more_users_and_more_budget_are_never_worse():
    for crowd in advice.crowds():
        by_place = {(r["users"], r["epsilon"] or 99.0): r["accuracy_mean"] for r in crowd["rows"]}
        for (users, epsilon), mean in by_place.items():
            larger = [v for (n, e), v in by_place.items() if n >= users and e >= epsilon]
            assert min(larger) == mean


def test_the_rows_of_the_population_are_those_that_the_command_writes():
    rows = advice.crowds()[0]["rows"]
    cells = [(u, e) for u in accuracy_by_users.PEOPLE for e in (*accuracy_by_users.EPSILONS, None)]
    assert [(row["users"], row["epsilon"]) for row in rows] == cells


def test_the_other_crowd_is_the_page_on_strategies():
    page = (ROOT / "docs" / "research" / "strategies.md").read_text(encoding="utf-8")
    table = page.split("On arguments, pooled, `hashing`")[1].split("## How length counts")[0]
    lines = re.findall(r"^\| [\d,]+ \|.*$", table, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        users, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        for epsilon, cell in zip((1.0, 3.0, 8.0), cells, strict=True):
            (row,) = [
                row for row in advice.crowds()[1]["rows"]
                if (row["users"], row["epsilon"]) == (int(users.replace(",", "")), epsilon)
            ]  # fmt: skip
            assert f"{100 * row['accuracy_mean']:.1f}" == cell.split(" →")[0]


def test_plan_shows_them_as_what_they_are(cli):
    given = ("--noise-multiplier", 20, "--users", 400, "--cohort", 40, "--rounds", 30)
    code, stdout, _ = cli("plan", *given, "--delta", 1e-5)
    shown = " ".join(stdout.split())
    assert code == 0
    assert "Accuracy measured on other crowds" in shown and "62–64 %" in shown
    assert "measured on two other crowds" in shown and "Yours will differ" in shown
    assert "60 % and 68 %" in shown


def test_the_page_on_strategies_has_the_figures_of_the_file():
    page = (ROOT / "docs" / "research" / "strategies.md").read_text(encoding="utf-8")
    for row in advice.crowds()[0]["rows"]:
        assert f"{row['accuracy_mean']:.3f} ± {row['accuracy_sd']:.3f}" in page
