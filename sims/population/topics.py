"""Topics of the embedded population: what is asked, and what each side advises and why.

Wording is data here, kept in a line format that is easy to read and extend. A topic starts with
`# name`; each further line starts with a marker and holds phrases separated by ` | `:

    ?   prompts: full sentences that describe the situation; `{slots}` come from `phrases.SLOTS`
    -   cautious actions, +  daring actions: bare verb phrases, to follow "I would …"
    --  cautious reasons, ++ daring reasons: clauses, to stand alone or to follow "because …"
    -t  cautious reasons, +t daring reasons: the same in a technical tone

No phrase addresses a person in the first person, so that it fits after any lead.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Side:
    """What one side, cautious or daring, says about one topic."""

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
