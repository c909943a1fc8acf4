"""A row of a file becomes a judgement of one user, or is refused for one reason.

Four kinds of rows are distinguished by the names of their columns alone
(`preference.data.columns`): pairs (`chosen`, `rejected`, perhaps `tie`; or two responses and which
of them won), the best of several (`responses`, `best`), rankings (`responses`, `ranking`) and
thumbs: single responses that were liked or not (`completion`, `label`). A row with `responses` and
`scores` is whichever of the others is declared.

On the way from a row to its judgement a cell is looked at once: who judged is `user_ids.user_cell`,
texts and chats are read in `conversations`, and what says which response is better in `labels`.
What comes of a row depends on what is declared (`preference.data.schema`) and on that row alone.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import lru_cache, partial
from sys import intern

from murmuration.preference.choices import MOST_RESPONSES, Kind
from murmuration.preference.data import labels
from murmuration.preference.data.cells import flag_cell, found_kind, is_empty, list_cell
from murmuration.preference.data.columns import (
    OF_PAIRS,
    Layout,
    column_names,
    layout_of,
    missing_columns,
    with_nested,
    with_user,
)
from murmuration.preference.data.conversations import (
    exchange,
    is_plain_text,
    prompt_cell,
    rated_exchange,
    response_cell,
    shared_words,
)
from murmuration.preference.data.errors import BadRow
from murmuration.preference.data.schema import PAIRS, Schema
from murmuration.preference.data.user_ids import user_cell

NEITHER = "a rating that says neither up nor down is not used"
SHARED_TURNS = "no column 'prompt': it is the turns that 'chosen' and 'rejected' share"
SHARED_WORDS = "no column 'prompt': it is the words that 'chosen' and 'rejected' both begin with"
NO_PROMPT = "no prompt, as declared"
#: Why a single rating is no part of a pair at a node, and where labels alone are protected.
_THUMBS_TELL = (
    "a single rating, and pairs are declared: which pairs ratings make tells what they were, so "
    "none are made at a node, and where labels alone are protected. Declare --kind thumbs, or give "
    "pairs (chosen, rejected); a simulation makes pairs under an --adjacency that protects all of "
    "a user, such as zero-out"
)
_NO_FLIP = {
    "thumbs": "is about a choice among responses, not about a single one",
    "ranking": "is about one label, not about a ranking",
}
#: Cells that are looked up; inside of others, as (1, 2) and (True, 2), equal ones may differ.
_PLAIN = frozenset((str, int, float, bool, type(None)))


@dataclass(frozen=True, slots=True)
class Row:
    """One judgement.

    Attributes:
        kind: of the judgement.
        prompt: its text.
        responses: in order of preference; among the best of several, the tied ones first and the
            others as given. Of thumbs the only one.
        y: one over the number of responses that are best: 1, or less for a tie. Of thumbs 1 where
            the response was liked, else 0.
        groups: of a ranking with ties the number of responses that share each place, the best
            first; else empty.
        flip_probability: of the label, or None if the row says nothing of it.
        notes: on how it was read.
    """

    kind: Kind
    prompt: str
    responses: tuple[str, ...]
    y: float = 1.0
    _: KW_ONLY
    groups: tuple[int, ...] = ()
    flip_probability: float | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)


class RowReader:
    """Reads the rows of a source as a schema declares them.

    Args:
        columns: field → column, of those that have other names than their own.
        schema: what rows are declared to be.
        at_node: whether they are a node's, which makes no pairs of thumbs.

    Raises:
        InputError: a name of ``columns`` is no field's, or two fields have one column.
    """

    def __init__(
        self, columns: Mapping[str, str] | None, schema: Schema, at_node: bool = False
    ) -> None:
        self._names = column_names(columns or {})
        if schema.one_user_per_row:
            del self._names["user_id"]
        self._schema, self._labels_only = schema, at_node or not schema.pair_thumbs
        self._rows_of = Counter[str]()  # of a user, or of what was shown where a row is a user
        # Votes on few items are alike: what was read is not read again.
        self._remembered = lru_cache(maxsize=2**14, typed=True)(partial(_judgement, schema))

    def read(self, row: Mapping[str, object] | BadRow) -> tuple[str, Row] | BadRow:
        """The user and judgement of a row; or why it has none, with the user."""
        try:
            user, judged = read_row(row, self._names, self._schema, self._remembered)
            check_row(judged, self._schema)
            if judged.kind != self._schema.kind and self._labels_only:
                raise BadRow(_THUMBS_TELL)
            if self._schema.one_user_per_row:
                content = _content(judged, self._labels_only)
                user = f"row {content} {self._rows_of[content] + 1}"
                self._rows_of[content] += 1
            else:
                check_count(self._rows_of[user], self._schema)
                self._rows_of[user] += 1
        except BadRow as reason:
            if reason.user_id is None:
                reason.user_id = readable_user(row, self._names)
            return reason
        return user, judged


def _content(judged: Row, shown_alone: bool) -> str:
    """A hash that identifies a row without a user: of all that it holds, so that equal rows have
    one name; or only of what was shown if labels are protected, since a name would reveal them.
    """
    content: tuple[object, ...] = (judged.prompt, *sorted(judged.responses))
    if not shown_alone:
        content += (judged.responses, judged.y, judged.groups, judged.flip_probability)
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def readable_user(row: object, names: Mapping[str, str]) -> str | None:
    """The user of a row, whatever else is wrong with it; None if it names nobody."""
    cells = row.cells if isinstance(row, BadRow) else row
    if not isinstance(cells, Mapping):
        return None
    try:
        cells = with_nested(cells, names)
        column = with_user(cells, names)["user_id"]
        return user_cell(cells.get(column), column)
    except Exception:  # a cell may hold anything
        return None


def _judgement(schema: Schema, layout: Layout, *cells: object) -> Row:
    """Make a judgement of the cells that are read, in the order of the layout's ``read``."""
    row = dict(zip(layout.read, cells, strict=True))
    if layout.form == "list":
        judged = _listed(row, layout.columns, schema)
    elif layout.form == "rating":
        judged = _rated(row, layout, schema)
    else:
        judged = _compared(row, layout, schema)
    column = layout.columns["flip_probability"]
    flip = row.get(column)
    if judged.kind in _NO_FLIP and not is_empty(flip):
        raise BadRow(f"{column!r} {_NO_FLIP[judged.kind]}")
    flip = labels.flip_probability(flip, column, len(judged.responses))
    return Row(
        judged.kind,
        intern(str(judged.prompt)),  # one object of each text is held: prompts recur
        tuple(intern(str(text)) for text in judged.responses),
        judged.y,
        groups=judged.groups,
        flip_probability=flip,
        notes=layout.notes + judged.notes,
    )


def cells_of(row: object) -> Mapping[str, object]:
    """The cells of a row by column. BadRow if it is not a mapping."""
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object with named fields, found {type(row).__name__}")
    return row


def read_row(
    row: Mapping[str, object] | BadRow,
    names: Mapping[str, str],
    schema: Schema = PAIRS,
    remembered: Callable[..., Row] | None = None,
) -> tuple[str, Row]:
    """The user of a row (empty if not read) and its judgement.

    `names` maps the fields of `columns.REQUIRED`, and others that were asked for, to the row's own
    columns. What was asked for must be there; other fields have their own names and may be absent,
    and so may the prompt of a pair whose texts share it. Without a `user_id` in `names` the row is
    nobody's. The same text twice among the best is a tie however it is marked: real collections
    have such rows. ``remembered`` is a cache of parsed cells.

    Raises:
        BadRow: anything that is missing, empty, not text, or contradicts itself or what is
            declared.
    """
    row = cells_of(row)
    try:
        row = with_nested(row, names)
        layout = layout_of(row, names)
        _check_columns(row, layout, schema)
        user, cells = "", [row[column] for column in layout.read]
        if column := layout.columns.get("user_id"):
            user = user_cell(row[column], column)
        if remembered is not None and _PLAIN.issuperset(map(type, cells)):
            return user, remembered(layout, *cells)
        return user, _judgement(schema, layout, *cells)
    except BadRow:
        raise
    except Exception as error:  # a cell may hold anything
        raise BadRow(f"a cell that cannot be read ({type(error).__name__})") from None


def _check_columns(row: Mapping[str, object], layout: Layout, schema: Schema) -> None:
    missing = dict(layout.missing)
    if schema.no_prompt:
        missing.pop("prompt", None)
    if missing:
        raise missing_columns(row, missing)
    if layout.maybe_prompted and not schema.no_prompt:
        column = layout.columns["completion" if layout.form == "rating" else "chosen"]
        if is_plain_text(row[column], column):
            raise missing_columns(row, {"prompt": "prompt"})


def _rated(row: Mapping[str, object], layout: Layout, schema: Schema) -> Row:
    """A single response, and whether it was liked."""
    column, label = layout.columns["completion"], layout.columns["label"]
    bare = layout.prompt is None or is_empty(row.get(layout.prompt))
    notes: tuple[str, ...] = ()
    if bare and schema.no_prompt and is_plain_text(row[column], column):
        prompt, response, notes = "", response_cell(row[column], column), (NO_PROMPT,)
    else:
        prompt, response = rated_exchange(row, column, layout.prompt)
    return Row("thumbs", prompt, (response,), labels.thumb(row[label], label, schema), notes=notes)


def _compared(row: Mapping[str, object], layout: Layout, schema: Schema) -> Row:
    """Two responses, of which the first was preferred, or which a label tells."""
    columns, prompt_column = layout.columns, layout.prompt
    pair = columns["chosen"], columns["rejected"]
    bare = prompt_column is None or is_empty(row.get(prompt_column))
    prompt, first, second = exchange(row, pair, None if bare else prompt_column)
    notes = (SHARED_TURNS,) if prompt_column is None else ()
    if not prompt and schema.no_prompt:
        notes = (NO_PROMPT,)
    elif not prompt and prompt_column is not None:
        prompt_cell(row[prompt_column], prompt_column)  # which says what is wrong with it
    elif not prompt:
        prompt, first, second = shared_words(first, second, pair)
        notes = (SHARED_WORDS,)
    y = 1.0
    if first == second or flag_cell(row.get(columns["tie"]), columns["tie"]):
        y = 0.5
    elif layout.form == "sides":
        y = labels.won(row[columns["winner"]], columns["winner"], pair, schema)
    elif _scores_tie(row, columns):
        y = 0.5
    if y == 0.0:
        first, second, y = second, first, 1.0
    return Row("pairs", prompt, (first, second), y, notes=notes)


def _scores_tie(row: Mapping[str, object], columns: Mapping[str, str]) -> bool:
    """True if a pair has scores and they are equal.

    Raises:
        BadRow: that of the response that was preferred is the lower one.
    """
    high, low = (labels.score(row.get(columns[each]), columns[each]) for each in OF_PAIRS[2:])
    if high is None or low is None:
        return False
    if high < low:
        raise BadRow(
            f"{columns['score_chosen']!r} is below {columns['score_rejected']!r}: the response "
            "that was preferred would be the worse one"
        )
    return high == low


def _listed(row: Mapping[str, object], columns: Mapping[str, str], schema: Schema) -> Row:
    """Several responses, and one of `best`, `ranking` and `scores`."""
    column = columns["responses"]
    shown = list_cell(row.get(column))
    if shown is None or not 2 <= len(shown) <= MOST_RESPONSES:
        raise BadRow(
            f"{column!r} must be a list of 2 to {MOST_RESPONSES} texts, found "
            f"{found_kind(row.get(column))}"
        )
    responses = [response_cell(response, column) for response in shown]
    asked, prompt = row.get(columns["prompt"]), ""
    if not (schema.no_prompt and is_empty(asked)):
        prompt = prompt_cell(asked, columns["prompt"])
    said = {each: row.get(columns[each]) for each in ("best", "ranking", "scores")}
    said = {each: cell for each, cell in said.items() if not is_empty(cell)}
    if ("best" in said and "ranking" in said) or not said:
        raise BadRow(
            f"a row with {column!r} needs {columns['best']!r}, {columns['ranking']!r} or "
            f"{columns['scores']!r}; found {'both' if said else 'neither'}. Name yours with "
            "--columns best=NAME"
        )
    if flag_cell(row.get(columns["tie"]), columns["tie"]):
        raise BadRow(f"{columns['tie']!r} is for pairs: list all that tie in {columns['best']!r}")
    if "best" in said:
        return _best_of(
            prompt, responses, labels.best_places(said["best"], columns["best"], len(responses))
        )
    if "ranking" in said:
        return _ranked(
            prompt, responses, labels.ranks(said["ranking"], columns["ranking"], len(responses))
        )
    scores = labels.scores(said["scores"], columns["scores"], len(responses))
    if schema.kind == "ranking":
        return _ranked(prompt, responses, [-score for score in scores])
    best = _best_of(
        prompt, responses, [n for n, score in enumerate(scores) if score == max(scores)]
    )
    if schema.kind == "pairs" and len(responses) == 2:
        return replace(best, kind="pairs")
    return best


def _best_of(prompt: str, responses: list[str], best: list[int]) -> Row:
    tied = {responses[place] for place in best}
    first_ones = [response for response in responses if response in tied]
    others = [response for response in responses if response not in tied]
    return Row("top-1", prompt, (*first_ones, *others), 1.0 / len(first_ones))


def _ranked(prompt: str, responses: list[str], ranks: list[float]) -> Row:
    order = sorted(range(len(ranks)), key=ranks.__getitem__)  # what ties stays in its order
    sizes = Counter(ranks[place] for place in order)  # in order of first appearance
    groups = tuple(sizes.values()) if len(sizes) < len(ranks) else ()
    y = 1.0 / groups[0] if groups else 1.0
    return Row("ranking", prompt, tuple(responses[place] for place in order), y, groups=groups)


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


def counted(notes: Mapping[str, int]) -> tuple[str, ...]:
    """Put notes into words, each with its number of rows."""
    return tuple(f"{note} ({count} rows)" for note, count in notes.items())
