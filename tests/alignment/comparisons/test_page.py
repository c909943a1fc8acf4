"""The page of a comparison: hostile answers stay text, and nothing is fetched."""

import base64
import re
from hashlib import sha256

import numpy as np
import pytest
from cards import Parsed

from murmuration.alignment.comparisons.comparison import ComparisonRequest, Side, compare
from murmuration.alignment.comparisons.page import page, short_names, shown_text
from murmuration.alignment.judges import PopulationJudge
from murmuration.preference.language.generation import PublicSeed
from murmuration.sims.population.population import Population
from tests.alignment.comparisons.test_comparison import ByLength

HOSTILE = [
    "<script>alert(1)</script>",
    "</p></article><style>*{display:none}</style>",
    "<img src=http://x/y onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "\x00\x1b[31m\u202egnp\u2066",
    "",
    "x" * 50_000,
]


class Hostile(ByLength):
    def about(self):
        return {"kind": "length", "name": "<b>length", "how": "By <i>length.", "caveats": ["<u>."]}


def compared(answers, prompts=None, judge=None, models=("m",), **more):
    prompts = prompts or [f"p{k} <b>" for k in range(len(answers))]
    sides = [Side(model, [[answer] for answer in answers], **more) for model in models]
    other = Side("runs/o/model", [["o"] for _ in answers])
    asked = ComparisonRequest(
        models=[*models], against=other.model, prompts=prompts, source="here <b>"
    )
    return compare(asked, sides, other, judge or Hostile())


def test_hostile_answers_are_text_and_nothing_else():
    html = page(compared(HOSTILE, models=["<svg onload=x>/m", "runs/b/model"]))
    plain = page(compared(["plain"] * 8, models=["a/m", "runs/b/model"]))
    read, kinds = Parsed(html), {tag for tag, _ in Parsed(plain).found}
    assert {tag for tag, _ in read.found} == kinds
    assert not kinds & {"script", "img", "link", "iframe", "object", "base", "form", "a"}
    names = {name for _, attrs in read.found for name in attrs}
    assert not {name for name in names if name.startswith("on") or name in ("style", "src", "href")}
    said = "\n".join(read.texts)
    for text in HOSTILE[:5]:
        assert text in said
    assert "\\x00\\x1b[31m\\u202egnp\\u2066" in said
    assert "It says nothing." in said
    assert "47,000 characters more" in said
    assert "<svg onload=x>/m" in said
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", html)
    assert read.open == []


def test_its_policy_lets_its_own_style_in_and_nothing_else():
    html = page(compared(["a", "b", "c"]))
    (policy,) = [a["content"] for tag, a in Parsed(html).found
                 if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"]  # fmt: skip
    (style,) = re.findall("<style>(.*?)</style>", html, re.DOTALL)
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert html.index("Content-Security-Policy") < html.index("<style>")
    assert not re.search(r"url\(|https?:|@import|//", html)


def test_pairs_are_drawn_by_the_seed_from_all():
    answers = [f"answer {k}" for k in range(40)]
    found = compared(answers)
    shown = [set(re.findall(r"answer \d+", page(found)))]
    for seed in range(1, 4):
        again = compared(answers)
        object.__setattr__(again.asked, "seed", PublicSeed(seed))
        shown.append(set(re.findall(r"answer \d+", page(again))))
    assert all(len(each) == 8 for each in shown)
    assert len({frozenset(each) for each in shown}) == 4
    assert page(found) == page(compared(answers))


def test_figures_of_the_population_and_of_divergence():
    exchanges = list(Population().texts("test", 30))
    prompts, answers, _ = ([row[part] for row in exchanges] for part in range(3))
    ratio_TN = np.random.default_rng(0).normal(2, 1, (30, 1))
    html = page(compared(answers, prompts, PopulationJudge(), log_ratio_TN=ratio_TN))
    assert "true reward" in html
    assert "mean log-ratio, nats" in html
    assert f"{ratio_TN.mean():.2f} (" in html
    for _, attrs in Parsed(html).found:  # all that is drawn is inside
        for name in ("x", "x1", "x2", "cx", "y", "y1", "y2", "cy"):
            if attrs.get(name, "").endswith("%"):
                assert -0.01 <= float(attrs[name][:-1]) <= 100.01
    assert "mean log-ratio" not in page(compared(answers, prompts, PopulationJudge()))


@pytest.mark.parametrize("ratio", [0.0, 1e-9, -3.0, 1e6, float("nan")])
def test_any_divergence_is_shown(ratio):
    assert "mean log-ratio" in page(compared(["a", "bb"], log_ratio_TN=np.full((2, 1), ratio)))


def test_names_are_as_short_as_tells_them_apart():
    assert short_names(["/home/me/runs/a/model", "bases/writer"]) == ["a/model", "bases/writer"]
    assert short_names(["/h/x/a/model", "/h/y/a/model"]) == ["x/a/model", "y/a/model"]
    assert short_names(["/h/a/m", "/h/a/m"]) == ["a/m", "a/m"]
    assert short_names(["/m", "n", ""]) == ["m", "n", ""]


def test_what_is_visible():
    assert shown_text("a\tb\u00a0c\nd") == "a b\u00a0c\nd"
    assert shown_text("می\u200cخواهم 👩\u200d💻 שלום") == "می\u200cخواهم 👩\u200d💻 שלום"
    assert shown_text("\r\u200b\u2028") == "\\r\\u200b\\u2028"


def test_where_nothing_can_be_read_no_rate_is_drawn_or_told():
    """All pairs are ties then; 50 % would look like a result."""
    prompts = [*Population().prompts("test", 6)]
    found = compared(["blub"] * 6, prompts, PopulationJudge(), models=("a/m",))
    assert found.result["models"][0]["win_rate"] == [None] * 3
    read = Parsed(page(found))
    said = " ".join(" ".join(read.texts).split())
    assert "there is no win rate against" in said
    assert "nothing can be read" in said
    assert "50.0" not in said
    assert not [tag for tag, _ in read.found if tag == "circle"]
