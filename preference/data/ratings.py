"""Pairs made of thumbs: of two responses to one prompt, the one that its user liked against the one
that they did not.

Decisions:
- A pair is made within one user and one prompt alone. Two people's thumbs are on two scales, and
  two prompts' responses answer different things.
- Every liked response is paired with every other, up to a public limit for a user, which also
  bounds the time. They come in an order that uses each of a prompt's thumbs about equally often,
  wherever it is cut, and that depends on nothing but this user's rows.
- Which pairs there are depends on what people said. So such pairs are not allowed where items or
  numbers of judgements are public (`Schema.pair_thumbs`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice

from murmuration.preference.data.rows import Row


@dataclass
class Paired:
    """The pairing of thumbs: the numbers of thumbs, of pairs, of thumbs in no pair, and of further
    pairs beyond the limit.
    """

    thumbs: int = 0
    pairs: int = 0
    alone: int = 0
    beyond: int = 0

    def told(self) -> tuple[str, ...]:
        """Notes for the owner of the data, and for nobody else."""
        if not self.thumbs:
            return ()
        said = (
            f"{self.thumbs} single ratings make {self.pairs} pairs: of one user and one prompt, "
            "what was liked against what was not"
        )
        if self.beyond:
            said += f"; {self.beyond} more pairs are beyond --max-judgements of a user"
        if self.alone:
            said += (
                f". {self.alone} of them are in no pair: --kind thumbs --model thumbs learns from "
                "these, too"
            )
        return (said,)


def pair_up(rows_of: Mapping[str, list[Row]], most: int) -> tuple[dict[str, list[Row]], Paired]:
    """Users' rows with pairs in the place of thumbs, behind their other rows; ``most`` of a user.

    Two thumbs about the same text make no pair: they contradict each other.
    """
    result, paired = {}, Paired()
    for user, rows in rows_of.items():
        result[user] = [row for row in rows if row.kind != "thumbs"]
        by_prompt: dict[str, tuple[list[Row], list[Row]]] = {}
        for row in rows:
            if row.kind == "thumbs":
                both = by_prompt.setdefault(row.prompt, ([], []))
                both[row.y < 0.5].append(row)
        for liked, disliked in by_prompt.values():
            room = max(0, most - len(result[user]))
            places = [*islice(_matched(liked, disliked), room)]
            used = len({up for up, _ in places}) + len({down for _, down in places})
            paired.thumbs += len(liked) + len(disliked)
            paired.pairs += len(places)
            paired.alone += len(liked) + len(disliked) - used
            paired.beyond += _pairs(liked, disliked) - len(places)
            result[user] += [_pair(liked[up], disliked[down]) for up, down in places]
    return result, paired


def _pairs(liked: list[Row], disliked: list[Row]) -> int:
    """The number of pairs, without making them."""
    disliked_of = Counter(row.responses for row in disliked)
    return sum(len(disliked) - disliked_of[row.responses] for row in liked)


def _matched(liked: list[Row], disliked: list[Row]) -> Iterator[tuple[int, int]]:
    """Yield the indices of all pairs: first each of the longer list once, against one of the other,
    then the next round.
    """
    up, down = len(liked), len(disliked)
    for turn in range(min(up, down)):
        for at in range(max(up, down)):
            pair = (at, (at + turn) % down) if up >= down else ((at + turn) % up, at)
            if liked[pair[0]].responses != disliked[pair[1]].responses:
                yield pair


def _pair(liked: Row, disliked: Row) -> Row:
    return replace(liked, responses=liked.responses + disliked.responses, y=1.0, kind="pairs")
