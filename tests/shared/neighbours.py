"""Populations on nodes, and what may become of one of their users.

A user's data are lines of bytes. ``everybody`` gives those of a small crowd, ``housed`` puts them
on nodes; a ``Change`` says what stands there of the changed user, and where. ``named`` are the
changes that somebody hostile tries first, ``changes`` draws from these and whatever else there is.
"""

import json
from dataclasses import dataclass
from functools import cache

import numpy as np
from hypothesis import strategies as st

TEXT = (
    "put some aside first . buy it today ! wait and compare prices . take the loan . keep the old "
    "one . bet on it , live now , save or spend all of it ."
)
WORDS = TEXT.split()
#: What is voted on.
ITEMS = ["put", "save", "spend"]
USERS = 12
NODES = (1, 2, 3)
#: Whom hypothesis changes: first and last of a node in the order of files, and one in the middle.
CHANGED = "u005"


def text(draws: np.random.Generator) -> str:
    return " ".join(draws.choice(WORDS, size=draws.integers(1, 9)))


def row(kind: str, user: str, draws: np.random.Generator) -> dict:
    """A judgement of a kind, as it should be."""
    if kind == "text":
        return {"user_id": user, "text": text(draws)}
    found = {"user_id": user, "prompt": text(draws)}
    if kind == "votes":
        chosen, rejected = draws.choice(ITEMS, 2, replace=False).tolist()
        vote = {**found, "chosen": chosen, "rejected": rejected}
        return {**vote, "tie": True} if draws.random() < 0.2 else vote
    if kind == "pairs":
        found |= {"chosen": text(draws), "rejected": text(draws)}
        return {**found, "tie": True} if draws.random() < 0.2 else found
    if kind == "thumbs":
        return found | {"completion": text(draws), "label": bool(draws.random() < 0.6)}
    most = 2 if kind == "best of two" else 4
    shown = [f"{text(draws)} {place}" for place in range(draws.integers(2, most + 1))]
    found["responses"] = shown
    if kind != "ranking":
        found["best"] = [0, 1] if draws.random() < 0.2 else int(draws.integers(len(shown)))
    else:
        found["ranking"] = (draws.permutation(len(shown)) + 1).tolist()
    return found


def line(found: object) -> bytes:
    return json.dumps(found).encode()


def everybody(kind: str, seed: int, users: int = USERS) -> dict[str, list[bytes]]:
    """Users' lines."""
    draws = np.random.default_rng([seed, 17])
    return {
        user: [line(row(kind, user, draws)) for _ in range(draws.integers(1, 6))]
        for user in (f"u{number:03}" for number in range(users))
    }


def housed(lines: dict[str, list[bytes]], alone: bool, seed: int) -> dict[int, list[bytes]]:
    """Users on nodes; the changed one on the second, or ``alone`` on a fourth."""
    nodes = {node: [] for node in ((*NODES, 4) if alone else NODES)}
    for number, (user, mine) in enumerate(lines.items()):
        home = 2 if user == CHANGED else 1 + (number + seed) % len(NODES)
        nodes[4 if alone and user == CHANGED else home] += mine
    return nodes


@dataclass(frozen=True)
class Change:
    """What becomes of the user: their lines, and on how many and which nodes.

    ``nothing``: what they contribute is nothing. ``where``: "stays", "moves" to the first node, or
    is on "both".
    """

    name: str
    lines: tuple[bytes, ...] | None = None
    nothing: bool = False
    where: str = "stays"


GONE = Change("gone", (), nothing=True)


def broken(kind: str, **cells: object) -> bytes:
    """A row of the changed user with other cells."""
    return line({**row(kind, CHANGED, np.random.default_rng(3)), **cells})


def wide(kind: str, responses: int) -> bytes:
    shown = [f"answer {place}" for place in range(responses)]
    last = {"best": 0} if kind != "ranking" else {"ranking": [*range(1, responses + 1)]}
    return line({"user_id": CHANGED, "prompt": "p", "responses": shown, **last})


def raw(kind: str, **cells: bytes) -> bytes:
    """A row of the changed user with cells that Python's JSON would not write."""
    found = row(kind, CHANGED, np.random.default_rng(3))
    inner = {name: cells.get(name, line(value)) for name, value in found.items()}
    inner |= {name: value for name, value in cells.items() if name not in found}
    return b"{" + b", ".join(line(n) + b": " + v for n, v in inner.items()) + b"}"


#: What runs are told of a kind of judgements.
DECLARED: dict[str, dict] = {
    "top-1": {"kind": "top-1", "responses": 4, "model": "plackett-luce"},
    "best of two": {"kind": "top-1", "responses": 4, "model": "plackett-luce"},
    "ranking": {"kind": "ranking", "responses": 4, "model": "plackett-luce"},
    "thumbs": {"kind": "thumbs", "model": "thumbs"},
    "votes": {"items": json.dumps(ITEMS)},
}
OTHER = {
    "pairs": "top-1", "top-1": "ranking", "ranking": "pairs", "best of two": "ranking",
    "text": "pairs", "thumbs": "pairs", "votes": "top-1",
}  # fmt: skip


@cache
def named(kind: str) -> dict[str, Change]:
    """The changes that are always tried."""
    draws = np.random.default_rng(11)
    good = [line(row(kind, CHANGED, draws)) for _ in range(200)]
    asked, answer = (
        "prompt",
        {"pairs": "chosen", "votes": "chosen", "text": "text", "thumbs": "completion"}.get(
            kind, "responses"
        ),
    )
    own = (lambda text: [text, "b"]) if answer == "responses" else (lambda text: text)
    if kind == "text":
        asked = "text"
    junk = b'{"user_id": "u005"' + b', "x": [' * 10_000
    found = [
        GONE,
        Change("one row", tuple(good[:1])),
        Change("200 rows", tuple(good)),
        Change("the same row 50 times", (good[0],) * 50),
        Change("another kind", (line(row(OTHER[kind], CHANGED, draws)),), nothing=kind != "pairs"),
        Change("another kind among their own", (*good[:2], line(row(OTHER[kind], CHANGED, draws)))),
        Change("64 responses", (*good[:2], wide(kind, 64))),
        Change("65 responses", (*good[:2], wide(kind, 65))),
        Change("no UTF-8", (b'{"user_id": "u005", "prompt": "\xff\xfe"}', b"\x80"), nothing=True),
        Change("NUL", (b"\x00" * 40, good[0].replace(b'"prompt": "', b'"prompt": "\\u0000'))),
        Change("no JSON", (b"{", b"]", b"nonsense, and more", good[0][:-9]), nothing=True),
        Change("JSON of other types", (b"7", b"null", b'"u005"', b"[]", b"{}", b"true"), True),
        Change("nested", (b"[" * 10_000, junk, b"[" * 10_000 + b"]" * 10_000), nothing=True),
        Change("nested cell", (raw(kind, **{asked: b"[" * 10_000 + b"]" * 10_000}),), nothing=True),
        Change("no text", tuple(raw(kind, **{asked: n}) for n in (b"NaN", b"1e400", b"7")), True),
        Change("Infinity", (raw(kind, **{answer: b"-Infinity"}),), nothing=True),
        Change("a lone surrogate", (raw(kind, **{asked: b'"\\ud800"'}),), nothing=True),
        Change("empty text", (*good[:2], broken(kind, **{answer: own("")})),),
        Change("blank text", (broken(kind, **{answer: own(" \t\n")}),), nothing=True),
        Change("empty prompt", (broken(kind, **{asked: ""}),), nothing=True),
        Change("200 kB", (broken(kind, **{answer: own("spend it " * 22_000)}),)),
        Change("one word", (broken(kind, **{answer: own("put")}),)),
        Change("one word of 200 kB", (broken(kind, **{answer: own("x" * 200_000)}),)),
        Change("a flip probability", (*good[:2], broken(kind, flip_probability=0.1))),
        Change("odd flip probabilities", tuple(
            raw(kind, flip_probability=p) for p in (b"NaN", b"2", b'"x"', b"-0.1", b"1e400", b"[]")
        )),
        Change("odd ties", tuple(
            raw(kind, tie=t) for t in (b'"maybe"', b"2", b"[]", b"NaN", b'{"a": 1}', b"1e400")
        )),
        Change("odd places", tuple(
            raw(kind, **{name: value})
            for name in ("best", "ranking")
            for value in (b"-1", b"99", b"[]", b"[0, 0]", b'"x"', b"NaN", b"1e400", b"[[0]]")
        )),
        Change("a name with blanks", tuple(
            one.replace(b'"u005"', name)
            for one, name in zip(good, (b'" u005"', b'"u005\\t"', b'"\\u2003u005"'), strict=False)
        )),
        Change("no name", tuple(
            raw(kind, user_id=name)
            for name in (b"null", b'""', b'" "', b"[]", b"{}", b"true", b"NaN", b'"\\udfff"')
        ), nothing=True),
        Change("keys twice", (raw(kind)[:-1] + b', "prompt": "b", "user_id": "u005"}',)),
        Change("other columns", (raw(kind, **{f"x{i}": b"[1, 2]" for i in range(500)}),)),
        Change("moves", where="moves"),
        Change("moves with other rows", tuple(good[:7]), where="moves"),
        Change("on two nodes", where="both"),
        Change("on two nodes with other rows", tuple(good[:7]), where="both"),
    ]  # fmt: skip
    return {change.name: change for change in found}


def after(lines: dict[str, list[bytes]], change: Change, alone: bool, seed: int) -> dict:
    """The nodes when it has happened."""
    mine = lines[CHANGED] if change.lines is None else list(change.lines)
    nodes = housed({**lines, CHANGED: mine if change.where == "stays" else []}, alone, seed)
    if change.where != "stays":
        nodes[1] = nodes[1] + mine
    if change.where == "both":
        nodes[2] = nodes[2] + lines[CHANGED]
    return nodes


#: Of JSON, with what Python's writes and reads besides.
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def changes(draw, kind: str) -> Change:
    """One of those with a name, or any lines."""
    if draw(st.booleans()):
        return draw(st.sampled_from(list(named(kind).values())))
    good = row(kind, CHANGED, np.random.default_rng(draw(st.integers(0, 99))))
    cells = st.sampled_from([*good, "tie", "best", "ranking", "flip_probability", "responses"])
    lines = (
        st.just(line(good))
        | st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"").replace(b"\r", b""))
        | anything.map(line)
        | st.dictionaries(cells, anything, max_size=3).map(
            lambda others: line({**good, **others, "user_id": CHANGED})
        )
        | st.integers(5, 70).map(lambda responses: wide(kind, responses))
    )
    where = draw(st.sampled_from(["stays", "stays", "moves"]))
    return Change("drawn", tuple(draw(st.lists(lines, max_size=6))), where=where)
