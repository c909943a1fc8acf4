"""What one row of judgements says, and whether it is what a schema declares."""

from dataclasses import dataclass, field

from murmuration.preference.choices import Kind
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.schema import Schema


@dataclass(frozen=True, slots=True)
class Row:
    """One judgement.

    Attributes:
        user_id: as text.
        prompt: what was asked.
        responses: in order of preference; among the best of several, the tied ones first and the
            others as given. Of thumbs the only one.
        y: one over the number of responses that are best: 1, or less for a tie. Of thumbs 1 where
            the response was liked, else 0.
        kind: what kind of row it is.
        flip_probability: of the label, or None if the row says nothing of it.
        groups: of a ranking with ties how many responses share each place, the best first; else
            empty.
        notes: what is to be said of how it was read.
        file: that it stands in, where a source has several.
    """

    user_id: str
    prompt: str
    responses: tuple[str, ...]
    y: float
    kind: Kind
    flip_probability: float | None
    groups: tuple[int, ...] = ()
    notes: tuple[str, ...] = field(default=(), compare=False)
    file: str = field(default="", compare=False)

    def for_user(self, user_id: str) -> "Row":
        """Return the same judgement of a user."""
        return Row(
            user_id,
            self.prompt,
            self.responses,
            self.y,
            self.kind,
            self.flip_probability,
            self.groups,
            self.notes,
            self.file,
        )


def check_row(row: Row, schema: Schema) -> None:
    """Raise BadRow unless a row is what is declared, or thumbs, of which pairs can be made."""
    if row.kind != schema.kind and (row.kind, schema.kind) != ("thumbs", "pairs"):
        shown = 0 if row.kind == "thumbs" else len(row.responses)
        raise BadRow(
            f"a row of kind {row.kind} over {len(row.responses)} responses, and {schema.kind} are "
            f"declared: pass {Schema(row.kind, shown).options or '--kind pairs'}, and keep pairs, "
            "the best of several, rankings and thumbs apart"
        )
    if len(row.responses) > schema.responses:
        raise BadRow(
            f"{len(row.responses)} responses, and {schema.responses} are declared as the most: "
            "raise --responses"
        )
    if row.flip_probability is not None and schema.labels == "true":
        raise BadRow(
            "a flip probability, and true labels are declared: this one is randomized already; "
            "pass --labels randomized to learn from such (--test takes true ones)"
        )
    if row.flip_probability is None and schema.labels == "randomized":
        raise BadRow("no flip probability, and randomized labels are declared: see --labels")
    for text in (row.prompt, *row.responses):
        check_length(text, schema)


def check_length(text: str, schema: Schema) -> None:
    """Raise BadRow for a text that is too long."""
    if len(text) > schema.max_characters:
        raise BadRow(
            f"a text of {len(text)} characters, and {schema.max_characters} are the most: "
            "raise --max-characters"
        )


def check_count(count: int, schema: Schema) -> None:
    """Raise BadRow for one more row of a user who has ``count``, if no more are kept."""
    if count >= schema.max_judgements:
        raise BadRow(f"more than {schema.max_judgements} rows of this user: raise --max-judgements")
