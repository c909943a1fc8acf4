"""The command, the date and the parts of a run: nothing secret, no folder of a machine."""

import json

import pytest

from murmuration.preference.base_names import without_folders
from murmuration.privacy.accounting import accountant
from murmuration.privacy.accounting.events import PoissonGaussian, PureDp
from murmuration.privacy.accounting.ledger import Ledger
from murmuration.privacy.adjacency import Adjacency
from murmuration.reporting.provenance import command, provenance

TERMS = {"adjacency": Adjacency.ADD_REMOVE, "delta": 1e-5}


def test_command_has_neither_seed_nor_folders():
    settings = {"data": "/home/ada/secret/rows.jsonl", "epsilon": 2.5, "seed": 77, "out": "/x/y"}
    told = command(settings)
    assert told == "murmuration run --data rows.jsonl --epsilon 2.5"
    assert "rounds" not in command({"rounds": 200, "strategy": "uls"})


@pytest.mark.parametrize("text", ["at /home/ada/models/tiny, merged", "'/home/ada/models/tiny'"])
def test_paths_in_sentences_keep_their_last_name(text):
    assert "ada" not in without_folders(text) and "tiny" in without_folders(text)


def test_what_is_no_path_stays():
    for text in ("1 / users = 0.1", "users/s and org/name", "https://example.org/a/b"):
        assert without_folders(text) == text


def test_parts_are_the_ledgers(tmp_path):
    event, count = PoissonGaussian(0.1, 4.0), PureDp(0.1)
    with Ledger(tmp_path / "ledger.jsonl", budget=3.0, **TERMS) as ledger:
        for round_ in (1, 2, 3):
            ledger.charge(event, round_=round_, covers="gradient sum")
        ledger.charge(count, round_=4, covers="held-out figures")
    (tmp_path / "config.json").write_text(json.dumps({"users": 500, "epsilon": 3.0}))
    found = provenance(tmp_path)
    alone = accountant.epsilon([(event, 3)], **TERMS)
    assert [part[:2] for part in found.parts] == [("gradient sum", 3), ("held-out figures", 1)]
    assert found.parts[0][2] == pytest.approx(alone) and found.parts[1][2] == pytest.approx(
        0.1, rel=1e-3
    )
    assert len(found.date) == 10 and found.declared == {"nominal users": "500"}


def test_a_folder_with_nothing_in_it(tmp_path):
    found = provenance(tmp_path)
    assert (found.date, found.command, found.parts) == ("", "", [])
    (tmp_path / "ledger.jsonl").write_text("{")
    assert provenance(tmp_path).parts == []


def test_what_the_operator_states_of_a_run(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"note": "to rank answers"}))
    assert provenance(tmp_path).note == "to rank answers"
