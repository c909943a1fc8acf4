"""Answers that a server writes: in their places, bounded, and no word of the key."""

import json

import pytest
from stand_ins.judge import StandIn, completion

from murmuration.alignment.endpoints.client import WRITER, Endpoint
from murmuration.alignment.endpoints.writer import EndpointWriter
from murmuration.preference.data.errors import InputError
from murmuration.preference.language.generation import Sampling

PROMPTS = [f"Question {number}?" for number in range(30)]
SHORT = Sampling(0.7, 0.9, max_new_tokens=4)


def echo(request):
    return completion("  to " + request["messages"][0]["content"])


def writer_at(server, **settings):
    settings = {"timeout": 20.0, **settings}
    return EndpointWriter(Endpoint(server.url, "m", role=WRITER, **settings))


def test_each_prompt_gets_its_own_answer():
    counts = []
    with StandIn(echo) as server:
        writer = writer_at(server)
        answers = writer.write(PROMPTS, SHORT, (3, 1), lambda *each: counts.append(each))
        again = writer.write(PROMPTS[:2], SHORT, (3, 1))
        other = writer.write(PROMPTS[:2], SHORT, (3, 2))
    assert answers == ["to " + prompt for prompt in PROMPTS]
    assert again == other == answers[:2]
    assert counts == [(done, 30) for done in range(1, 31)]
    assert writer.cut_off == 0
    bodies = {body["messages"][0]["content"]: body for body in server.requests[:30]}
    assert set(bodies[PROMPTS[0]]) == {
        "model", "messages", "temperature", "top_p", "max_tokens", "seed",
    }  # fmt: skip
    for prompt, body in bodies.items():
        assert body["messages"] == [{"role": "user", "content": prompt}]
        assert (body["model"], body["temperature"], body["top_p"]) == ("m", 0.7, 0.9)
        assert body["max_tokens"] == 4
    seeds = {prompt: body["seed"] for prompt, body in bodies.items()}
    assert len(set(seeds.values())) == 30
    assert all(0 <= seed < 2**31 for seed in seeds.values())
    later = [(body["messages"][0]["content"], body["seed"]) for body in server.requests[30:]]
    assert {seed for prompt, seed in later if prompt == PROMPTS[0]} > {seeds[PROMPTS[0]]}


def test_a_system_prompt_is_sent_before_prompts_without_one():
    own = "\n\nSystem: Be kind.\n\nHuman: Why?"
    with StandIn(echo) as server:
        endpoint = Endpoint(server.url, "m", role=WRITER)
        EndpointWriter(endpoint, "Be brief.").write(["Why?", own], SHORT)
    sent = [body["messages"] for body in server.requests]
    brief = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    kind = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Why?"}]
    assert sorted(sent, key=str) == [brief, kind]


def test_turns_are_sent_as_turns():
    prompt = "\n\nHuman: Spend or save?\n\nAssistant: Save.\n\nHuman: Why?"
    with StandIn(echo) as server:
        EndpointWriter(Endpoint(server.url, "m", role=WRITER)).write([prompt], SHORT)
    (body,) = server.requests
    assert body["messages"] == [
        {"role": "user", "content": "Spend or save?"},
        {"role": "assistant", "content": "Save."},
        {"role": "user", "content": "Why?"},
    ]


def test_answers_that_are_cut_off_are_counted():
    def reply(request):
        body = echo(request)
        body["choices"][0]["finish_reason"] = "length" if "7" in str(body) else "stop"
        return body

    with StandIn(reply) as server:
        writer = writer_at(server)
        writer.write(PROMPTS, Sampling())
        assert writer.cut_off == sum("7" in prompt for prompt in PROMPTS)
        writer.write(PROMPTS, Sampling())
        assert writer.cut_off == 2 * sum("7" in prompt for prompt in PROMPTS)


def test_what_a_strange_server_says_is_text():
    """Half a surrogate pair, which no file can hold, and nothing at all."""
    with StandIn(lambda _: b'{"choices": [{"message": {"content": "a\\ud83d b "}}]}') as server:
        assert writer_at(server).write(["p"], SHORT) == ["a? b"]
        server.reply = lambda _: completion(None)
        assert writer_at(server).write(["p"], SHORT) == [""]


#: Others that are no completions the judge's tests have.
HOSTILE = {
    "an error": {"error": {"message": "no SECRET"}},
    "longer than asked": completion("x" * (64 * 4 + 1)),
}


@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
def test_replies_that_are_no_answers(reply):
    """One is asked for again; where there is nothing else, that is one line, and few requests."""
    with StandIn(lambda _: reply) as server:
        with pytest.raises(InputError) as error:
            writer_at(server).write(PROMPTS, SHORT)
        assert "no chat completions" in str(error.value)
        assert len(server.requests) <= 30
        with pytest.raises(InputError, match="1 of 1 prompts got no answer of m") as error:
            writer_at(server).write(["p"], SHORT)
        assert "\n" not in str(error.value) and "SECRET" not in str(error.value)
    seen = set()

    def once(request):
        prompt = request["messages"][0]["content"]
        first = prompt not in seen and "2" in prompt
        seen.add(prompt)
        return reply if first else echo(request)

    with StandIn(once) as server:
        writer = writer_at(server)
        assert writer.write(PROMPTS, Sampling()) == ["to " + prompt for prompt in PROMPTS] or (
            reply is HOSTILE["longer than asked"]  # which these settings allow
        )


def test_its_key_is_its_own_and_goes_nowhere_else(monkeypatch, caplog, capfd):
    key = "sk-writer-0123"
    monkeypatch.setenv(WRITER.key, key)
    monkeypatch.setenv("MURMURATION_JUDGE_KEY", "sk-judge-0456")
    caplog.set_level(0)
    with StandIn(echo) as server:
        writer = writer_at(server, attempts=1)
        writer.write(PROMPTS[:2], SHORT)
        assert {each["Authorization"] for each in server.headers} == {f"Bearer {key}"}
        texts = [json.dumps(server.requests), repr(writer)]
        server.reply = lambda _: (401, {"X-Key": key}, key.encode())
        why = f"--writer http.*model m and the key in {WRITER.key}"
        with pytest.raises(InputError, match=why) as error:
            writer.write(PROMPTS[:2], SHORT)
        texts.append(str(error.value))
    out, err = capfd.readouterr()
    assert key not in "".join([*texts, out, err, caplog.text])


def test_settings_that_are_refused():
    for url in ("localhost:8000", "ftp://h/v1"):
        with pytest.raises(InputError, match=r"^--writer .*that is not an address"):
            Endpoint(url, "m", role=WRITER)
    with StandIn(echo) as server, pytest.raises(InputError, match="--seed"):
        writer_at(server).write(["p"], SHORT, -1)
