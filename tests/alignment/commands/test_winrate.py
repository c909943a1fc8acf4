"""``murmuration winrate``: who wins, before which judge, and a page."""

import json

import pytest
from local_runs import refusal
from stand_ins.judge import StandIn, completion, longer

from murmuration.sims.population.population import Population
from murmuration.sims.population.tiny_language_model import TinyBase, build

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    for seed in (0, 1):
        shape = TinyBase(width=16, layers=1, heads=2, epochs=1, batch=8, rate=1e-2, seed=seed)
        build(folder / f"b{seed}", shape, Population().texts("train", 20))
    return folder / "b0", folder / "b1"


@pytest.fixture
def files(tmp_path):
    """Answers of the population to its own prompts, in two files."""
    rows = list(Population().texts("test", 30))
    for name, part in (("one", 1), ("two", 2)):
        said = [{"prompt": row[0], "response": row[part]} for row in rows]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in said))
    return tmp_path / "one.jsonl", tmp_path / "two.jsonl"


@pytest.fixture
def stand_in():
    with StandIn(longer) as server:
        yield server


FEW = ("--limit", 40, "--max-new-tokens", 30)


def test_json(cli, bases):
    code, stdout, lines = cli(
        "winrate", bases[0], "--against", bases[1], *FEW, "--prompts", "population:unseen", "--json"
    )
    assert (code, lines) == (0, [])
    found = json.loads(stdout)
    assert found["prompts"]["source"] == "population:unseen"
    assert found["prompts"]["count"] == 40
    sides = [*found["models"], found["against"]]
    assert [side["model"] for side in sides] == [*map(str, bases)]
    for side in sides:  # that have hardly learnt anything
        assert side["unreadable"][0] == 1
        assert side["reward"] == [None] * 3
        assert sum(side["why_not"].values()) == 40
        assert 0 < side["words"] <= 30
    assert found["models"][0]["win_rate"] == [None] * 3  # all are ties, and no ½ is claimed
    assert found["models"][0]["ties"] == 40
    assert found["models"][0]["kl"][0] != 0


def test_table(cli, bases):
    code, stdout, _ = cli("winrate", bases[0], bases[1], "--against", bases[0], *FEW, "--no-kl")
    assert code == 0
    said = " ".join(stdout.split())
    assert "100.0% (91.2% to 100.0%)" in said
    assert "length-controlled wins" in said
    for base in bases:  # 50 % of ties would look like a result
        assert f"{base} wins – (nothing can be read)" in said
    assert "50.0%" not in said
    assert "there is no win rate" in said
    assert "log-ratio" not in said


def test_a_folder_with_a_page(cli, files, tmp_path):
    out = tmp_path / "new" / "out"
    code, stdout, _ = cli("winrate", files[0], "--against", files[1], "--out", out)
    assert code == 0
    assert str(out / "page.html") in stdout
    assert sorted(path.name for path in out.iterdir()) == ["answers", "page.html", "result.json"]
    result = json.loads((out / "result.json").read_text())
    count, different = result["prompts"]["count"], result["prompts"]["different"]
    assert count == different == len({json.loads(x)["prompt"] for x in files[0].open()})
    assert result["prompts"]["source"] == str(files[1])
    # What it has written answers for what it was written by.
    again = tmp_path / "again"
    code, *_ = cli("winrate", out / "answers" / "1.jsonl",
                   "--against", out / "answers" / "against.jsonl", "--out", again)  # fmt: skip
    assert code == 0
    other = json.loads((again / "result.json").read_text())
    assert other["models"][0]["win_rate"] == result["models"][0]["win_rate"]


def test_an_endpoint_judges_and_is_paid_once(cli, files, tmp_path, stand_in, monkeypatch):
    monkeypatch.setenv("MURMURATION_JUDGE_KEY", "sk-secret-77")
    ask = ("winrate", files[0], "--against", files[1], "--judge", stand_in.url, "--judge-model",
           "m", "--out", tmp_path / "o")  # fmt: skip
    code, _, lines = cli(*ask)
    assert (code, lines) == (0, [])
    asked = len(stand_in.requests)
    result = json.loads((tmp_path / "o" / "result.json").read_text())
    assert asked == 2 * (result["judge"]["pairs"] - result["judge"]["equal_answers"])
    page = (tmp_path / "o" / "page.html").read_text()
    assert "Both orders agree" in page
    assert cli(*ask)[0] == 0
    assert len(stand_in.requests) == asked
    again = json.loads((tmp_path / "o" / "result.json").read_text())
    assert again["models"] == result["models"]
    assert (result["judge"]["asked_now"], again["judge"]["asked_now"]) == (asked, 0)
    for path in (tmp_path / "o").rglob("*.*"):
        assert "sk-secret" not in path.read_text()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--judge", "http://h/v1", "--judge-model", "m"), "needs --out"),
        (("--prompts", "population:unseen"), "too few answers"),
    ],
)
def test_options_that_are_refused(cli, files, tmp_path, monkeypatch, more, said):
    monkeypatch.chdir(tmp_path)
    assert said in refusal(cli("winrate", files[0], "--against", files[1], *more))
    assert not (tmp_path / "o" / "page.html").exists()


def test_nothing_of_others_is_overwritten(cli, files, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    for out in (tmp_path / "mine", files[0]):
        assert "is there already" in refusal(
            cli("winrate", files[0], "--against", files[1], "--out", out)
        )
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"


def test_a_server_writes_for_all_models_but_files(cli, files, tmp_path, stand_in):
    def reply(request):
        body = completion(f"{request['model']} {request['seed']}")
        body["choices"][0]["finish_reason"] = "length" if request["model"] == "long" else "stop"
        return body

    stand_in.reply = reply
    code, stdout, _ = cli(
        "winrate", "long", files[0], "--against", "short", "--writer", stand_in.url, "--limit", 5,
        "--out", tmp_path / "o", "--json",
    )  # fmt: skip
    assert code == 0
    result = json.loads(stdout)
    served, file = result["models"]
    assert served["promise"].startswith("not known: a server wrote")
    assert served["no_kl"].startswith("a server wrote its answers")
    assert (served["cut_off"], file["cut_off"], result["against"]["cut_off"]) == (1.0, None, 0.0)
    caveats = " ".join(result["caveats"])
    assert "100.0 % of the answers of long were cut off at --max-new-tokens 128" in caveats
    assert f"Prompts were sent to {stand_in.url}" in caveats
    assert len(stand_in.requests) == 2 * result["prompts"]["count"]
    rows = (tmp_path / "o" / "answers" / "1.jsonl").read_text().splitlines()
    assert {json.loads(row)["private_runs"] for row in rows} == {"not-known"}


def test_a_system_prompt_is_that_of_all_models(cli, bases, language_model):
    """And answers are others than without; where it is each model's own, the result says none."""
    path = language_model("gpt2-chat")
    command = ("winrate", path, "--against", path, *FEW, "--no-kl", "--json")
    results = {}
    for system in (None, "", "wait and compare"):
        options = () if system is None else ("--system", system)
        code, stdout, _ = cli(*command, *options)
        assert code == 0
        results[system] = json.loads(stdout)
        assert results[system].pop("system") == system
    assert results[None] == results[""] != results["wait and compare"]
    assert "--system: the base has no chat template" in refusal(
        cli("winrate", bases[0], "--against", bases[0], *FEW, "--system", "wait")
    )
