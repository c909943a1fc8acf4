"""Topics of the embedded population: what is asked, and what each side advises and why.

Wording is data: `living.md` (home, family and things to buy) and `money.md` (work, saving and debt)
have the topics of the train and test splits, `unseen.md` those of the unseen-topics split, which no
train or test prompt is ever about. They have a line format that is easy to extend. A topic starts
with `# name`; each further line starts with a marker and holds phrases separated by ` | `:

    ?   prompts: full sentences that describe the situation; `{slots}` come from `phrases.SLOTS`
    -   cautious actions, +  daring actions: bare verb phrases, to follow "I would …"
    --  cautious reasons, ++ daring reasons: clauses, to stand alone or to follow "because …"
    -t  cautious reasons, +t daring reasons: the same in a technical tone

No phrase addresses a person in the first person, so that it fits after any lead.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Side:
    """The phrases of one side, cautious or daring, about one topic."""

    actions: tuple[str, ...]
    plain_reasons: tuple[str, ...]
    technical_reasons: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """One kind of money decision."""

    name: str
    prompts: tuple[str, ...]
    cautious: Side
    daring: Side


def parse_topics(table: str) -> tuple[Topic, ...]:
    """Read topics from the line format described in the module docstring."""
    phrases: dict[str, dict[str, tuple[str, ...]]] = {}
    name = ""
    for line in table.strip().splitlines():
        marker, _, text = line.strip().partition(" ")
        if marker == "#":
            name = text
            phrases[name] = {}
        elif marker:
            known = phrases[name].get(marker, ())
            phrases[name][marker] = known + tuple(part.strip() for part in text.split(" | "))
    return tuple(
        Topic(
            name,
            lines["?"],
            cautious=Side(lines["-"], lines["--"], lines["-t"]),
            daring=Side(lines["+"], lines["++"], lines["+t"]),
        )
        for name, lines in phrases.items()
    )


def _read(name: str) -> tuple[Topic, ...]:
    return parse_topics(Path(__file__).with_name(name).read_text(encoding="utf-8"))


LIVING_TOPICS, MONEY_TOPICS, UNSEEN_TOPICS = map(_read, ("living.md", "money.md", "unseen.md"))
