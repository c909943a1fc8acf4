"""``murmuration bounds``: every theorem, as a table and as JSON."""

import json

import pytest

SIZE = ["--users", 2500, "--judgements", 10, "--dimension", 32, "--epsilon", 1]
THEOREMS = {
    *("A Thm 1", "A Thm 1, proof", "A Thm 2", "A Thm 4", "A Thm 6"),
    *("L Thm 3.1", "L Thm 3.2", "L Thm 4.2", "L Thm 4.5", "L Thm 5.1", "L Thm 5.3"),
    *("L Thm D.3", "L Thm D.5"),
}


def test_as_json(cli):
    code, stdout, lines = cli("bounds", *SIZE, "--delta", 1e-5, "--json")
    assert (code, lines) == (0, [])
    found = json.loads(stdout)
    assert {row["source"] for row in found["rows"]} == THEOREMS
    assert found["total"] == 25_000
    assert found["kappa"] == 0.0625
    for row in found["rows"]:
        assert row["kind"] == "rate without constants"
        assert "replace-labels" in row["adjacency"]
        assert row["value"] > 0


def test_as_a_table(cli):
    code, stdout, _ = cli("bounds", *SIZE, "--delta", 1e-5)
    assert code == 0
    assert all(name in stdout for name in THEOREMS)
    assert "L Thm D.3 *" in stdout  # δ > 0
    assert "without constants" in " ".join(stdout.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--delta", 1.5], "below 1"),
        (["--delta", 1e-5, "--coverage", 1.0], "cannot be"),
        (["--delta", 1e-5, "--responses", 1], "at least 2"),
    ],
)
def test_bad_input_is_one_line(cli, more, message):
    code, stdout, lines = cli("bounds", *SIZE, *more)
    assert (code, stdout, len(lines)) == (2, "", 1)
    assert message in lines[0]
