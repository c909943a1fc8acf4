"""What a report says about held-out users, by what was learnt."""

from murmuration.server.reporting.report import accuracy_words, heldout_rows

TEXT = {"task": "text", "heldout_loss": 2.5, "heldout_perplexity": 12.18}


def test_a_reward_is_right_about_judgements(make_result):
    rows = heldout_rows(make_result(heldout_chance=0.25))
    assert rows[0][:2] == ("Held-out accuracy", "74.3 %")
    assert "judgements of 330 users" in rows[0][2]
    assert "25.0 %" in rows[0][2]
    assert "prefers the response" in accuracy_words(make_result())[1]


def test_next_tokens_are_guessed(make_result):
    rows = heldout_rows(make_result(**TEXT))
    assert rows[0][:2] == ("Held-out loss", "2.500 nats a token, perplexity 12.18")
    assert rows[1][0] == "Next tokens guessed right"
    assert not any("judgement" in " ".join(row) for row in rows)
    assert "next token" in accuracy_words(make_result(**TEXT))[1]


def test_nobody_could_be_asked(make_result):
    for more in ({}, TEXT):
        assert heldout_rows(make_result(heldout_accuracy=None, **more))[0][1] == "not measured"
