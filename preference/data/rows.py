"""One row of judgements: what its columns must hold, and why it is refused.

Four kinds of rows, told apart by the names of their columns alone
(`preference.data.column_meanings`): pairs (`chosen`, `rejected`, perhaps `tie`; or two responses
and which of them won), the best of several (`responses`, `best`), rankings (`responses`, `ranking`)
and thumbs: single responses that were liked or not (`completion`, `label`). A row with `responses`
and `scores` is whichever of the others is declared. Texts may be lists of chat messages, and the
prompt of a pair what its two texts share (`preference.data.cells`). A cell of text that should be a
list, as in CSV, is read as JSON.

A row that says which of two sides won is turned round by what it says itself. The winner must name
a side by its column, or by its end, perhaps behind a word (`model_a`). A number where sides have
letters could mean either one, and is refused rather than guessed.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from murmuration.preference.choices import MOST_RESPONSES as MOST_RESPONSES
from murmuration.preference.choices import Kind as Kind
from murmuration.preference.data.cells import (
    exchange,
    flag_cell,
    flip_cell,
    is_empty,
    is_plain_text,
    label_text,
    places_cell,
    prompt_cell,
    ranks_cell,
    rated_exchange,
    response_cell,
    responses_cell,
    score_cell,
    scores_cell,
    shared_words,
    side_cell,
    user_cell,
)
from murmuration.preference.data.column_meanings import (
    KNOWN_COLUMNS,
    OF_PAIRS,
    PROMPT_COLUMNS,
    Layout,
    column_names,
    layout_of,
    missing_columns,
    with_nested,
    with_user,
)
from murmuration.preference.data.errors import BadRow as BadRow
from murmuration.preference.data.errors import InputError as InputError
from murmuration.preference.data.judgement_row import Row, check_count, check_row
from murmuration.preference.data.label_meanings import (
    SIDES,
    first_preferred,
    is_declared,
    side_on_scale,
    thumb,
)
from murmuration.preference.data.ratings import THUMBS_TELL
from murmuration.preference.data.schema import PAIRS, Schema

NEITHER = "a rating that says neither up nor down is not used"
#: Cells that are looked up; inside of others, as (1, 2) and (True, 2), equal ones may differ.
_PLAIN = frozenset((str, int, float, bool, type(None)))
#: So many different judgements, and sets of columns, are remembered.
_MOST_KEPT = 2**14
SHARED_TURNS = "no column 'prompt': it is the turns that 'chosen' and 'rejected' share"
SHARED_WORDS = "no column 'prompt': it is the words that 'chosen' and 'rejected' both begin with"
NO_PROMPT = "no prompt, as declared"


def counted(notes: Mapping[str, int]) -> tuple[str, ...]:
    """Return what is said of rows, and of how many."""
    return tuple(f"{note} ({count} rows)" for note, count in notes.items())


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
        self._texts: dict[str, str] = {}  # one object per distinct text: prompts recur
        # Votes on few items are alike: what was read is not read again.
        self._users: dict[str, str] = {}
        self._columns: dict[tuple[str, ...], tuple[str, list[str]]] = {}
        self._known_columns = KNOWN_COLUMNS.union(PROMPT_COLUMNS, self._names.values())
        self._read: dict[tuple[object, ...], Row] = {}
        self._file = ""
        self._nested = any("." in column for column in self._names.values())

    def read(self, row: Mapping[str, object] | BadRow, file: str = "") -> tuple[str, Row] | BadRow:
        """Return whose a row is and its judgement, which says in which ``file`` it stands, or why
        it is none.

        Rows of a file that say the same are one object, which names no user; of thumbs each has its
        own.
        """
        if file != self._file:
            self._file, self._read = file, {}
        if self._nested and isinstance(row, Mapping):
            try:
                row = with_nested(row, self._names)
            except Exception:  # a cell may hold anything
                return BadRow("a cell that cannot be read")
        user, key = self._known(row)
        judged = self._read.get(key) if key else None
        try:
            if judged is None:
                judged = self._judged(row, key)
            user_id = judged.user_id if user is None else user
            if not self._schema.one_user_per_row:
                check_count(self._rows_of[user_id], self._schema)
        except BadRow as reason:
            reason.user_id = reason.user_id or user
            return reason
        if self._schema.one_user_per_row:
            user_id = _content(judged, self._labels_only)
        self._rows_of[user_id] += 1
        if self._schema.one_user_per_row:
            user_id = f"row {user_id} {self._rows_of[user_id]}"
        return user_id, judged.for_user(user_id) if judged.kind == "thumbs" else judged

    def _known(
        self, row: Mapping[str, object] | BadRow
    ) -> tuple[str | None, tuple[object, ...] | None]:
        """Return whose a row is, and what its judgement is a function of, but for that; None where
        the first cannot be told, or the second not be looked up."""
        if type(row) is not dict and not isinstance(row, Mapping):  # the first takes no time
            cells = row.cells if isinstance(row, BadRow) else None
            return readable_user(cells, self._names, self._schema), None
        try:
            present = tuple(row)
            parts = self._columns.get(present)
            if parts is None:
                column = with_user(present, self._names)["user_id"]
                known = self._known_columns
                parts = column, [each for each in present if each in known and each != column]
                if len(self._columns) < _MOST_KEPT:
                    self._columns[present] = parts
            cell = row[parts[0]]
            user = self._users.get(cell) if type(cell) is str else None
            if user is None:
                user = user_cell(cell, parts[0])
                user = self._schema.same_id(user)
                if type(cell) is str:
                    self._users[cell] = user = self._texts.setdefault(user, user)
            cells = [row[each] for each in parts[1]]
            kinds = [*map(type, cells)]
            key = (present, *cells)
            if kinds.count(str) < len(kinds):
                if not _PLAIN.issuperset(kinds):
                    return user, None
                # 1, 1.0 and True are equal, and a cell may hold one of them only.
                key = (*key, *kinds)
        except Exception:  # a cell may hold anything
            return readable_user(row, self._names, self._schema), None
        return user, key

    def _judged(self, row: Mapping[str, object] | BadRow, key: tuple[object, ...] | None) -> Row:
        """A row's judgement as it is declared, to be found again by its key.

        Raises:
            BadRow: it is none.
        """
        judged = parse_row(row, self._names, self._schema)
        check_row(judged, self._schema)
        if judged.kind != self._schema.kind and self._labels_only:
            raise BadRow(THUMBS_TELL)
        judged = replace(
            judged,
            prompt=self._texts.setdefault(judged.prompt, judged.prompt),
            responses=tuple(self._texts.setdefault(text, text) for text in judged.responses),
            file=self._file,
        )
        if key is not None and len(self._read) < _MOST_KEPT:
            judged = self._read[key] = replace(judged, user_id="")
        return judged


def _content(judged: Row, shown_alone: bool) -> str:
    """Return what stands for a row without a user: all that it says, so that rows of one name are
    alike; or what was ``shown_alone``, where labels are protected, which a name would tell."""
    content: tuple[object, ...] = (judged.prompt, *sorted(judged.responses))
    if not shown_alone:
        content += (judged.responses, judged.y, judged.groups, judged.flip_probability)
    return hashlib.blake2b(repr(content).encode(), digest_size=16).hexdigest()


def parse_row(
    row: Mapping[str, object] | BadRow, names: Mapping[str, str], schema: Schema = PAIRS
) -> Row:
    """Return a row's judgement.

    `names` maps the fields of `REQUIRED`, and others that were asked for, to the row's own keys.
    What was asked for must be there; other fields have their own names and may be absent, and so
    may the prompt of a pair whose texts share it. Without a `user_id` in `names` the row is
    nobody's: the id is empty. Of `scores` a judgement of the declared kind is made. Numbers
    become ids by their value: 7 and 7.0 are the user `7`. The same text twice among the best is a
    tie however it is marked: nobody can prefer a text to itself, and real collections hold such
    rows.

    Raises:
        BadRow: anything that is missing, empty, not text, or contradicts itself or what is
            declared.
    """
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object with named fields, found {type(row).__name__}")
    try:
        return _judgement(row, layout_of(row, names), schema)
    except BadRow:
        raise
    except Exception as error:  # a cell may hold anything
        raise BadRow(f"a cell that cannot be read ({type(error).__name__})") from None


def readable_user(row: object, names: Mapping[str, str], schema: Schema = PAIRS) -> str | None:
    """Return whom a row is of, whatever else is wrong with it; None if it names nobody."""
    if not isinstance(row, Mapping):
        return None
    try:
        row = with_nested(row, names)
        column = with_user(row, names)["user_id"]
        return schema.same_id(user_cell(row.get(column), column))
    except Exception:  # a cell may hold anything
        return None


_NO_FLIP = {
    "thumbs": "is about a choice among responses, not about a single one",
    "ranking": "is about one label, not about a ranking",
}


def _judgement(row: Mapping[str, object], layout: Layout, schema: Schema) -> Row:
    columns = layout.columns
    missing = {each: name for each, name in layout.missing.items() if each != "prompt"}
    if missing := missing if schema.no_prompt else layout.missing:
        raise missing_columns(row, missing)
    if layout.form in ("pair", "sides"):
        judged = _pair(row, layout, schema)
    elif layout.form == "list":
        judged = _listed(row, columns, schema)
    else:
        prompt, response, notes = _rated(row, layout, schema)
        y = thumb(row[columns["label"]], columns["label"], schema)
        judged = Row("", prompt, (response,), y, "thumbs", None, notes=notes)
    user_id = ""
    if "user_id" in columns:
        user_id = schema.same_id(user_cell(row[columns["user_id"]], columns["user_id"]))
    flip, column = row.get(columns["flip_probability"]), columns["flip_probability"]
    if judged.kind in _NO_FLIP and not is_empty(flip):
        raise BadRow(f"{column!r} {_NO_FLIP[judged.kind]}")
    return replace(
        judged,
        user_id=user_id,
        flip_probability=flip_cell(flip, column, len(judged.responses)),
        notes=layout.notes + judged.notes,
    )


def _rated(
    row: Mapping[str, object], layout: Layout, schema: Schema
) -> tuple[str, str, tuple[str, ...]]:
    """Prompt and response of a rating, and what is said of them."""
    column = layout.columns["completion"]
    prompt = layout.columns["prompt"] if layout.prompted else None
    bare = prompt is None or is_empty(row.get(prompt))
    if bare and is_plain_text(row[column], column):
        if schema.no_prompt:
            return "", response_cell(row[column], column), (NO_PROMPT,)
        if layout.maybe_prompted:
            raise missing_columns(row, {"prompt": "prompt"})
    return *rated_exchange(row, column, prompt), ()


def _pair(row: Mapping[str, object], layout: Layout, schema: Schema) -> Row:
    """Two responses in order of preference."""
    columns = layout.columns
    pair = (columns["chosen"], columns["rejected"])
    prompt = columns["prompt"] if layout.prompted else None
    lacking = prompt is None or is_empty(row.get(prompt))
    if layout.maybe_prompted and is_plain_text(row[pair[0]], pair[0]) and not schema.no_prompt:
        raise missing_columns(row, {"prompt": "prompt"})
    asked, first, second = exchange(row, pair, None if lacking else prompt)
    notes = (SHARED_TURNS,) if prompt is None else ()
    if not asked and schema.no_prompt:
        notes = (NO_PROMPT,)
    elif not asked and prompt is not None:
        prompt_cell(row[prompt], prompt)  # which says what is wrong with it
    elif not asked:
        asked, first, second = shared_words(first, second, pair)
        notes = (SHARED_WORDS,)
    y = 1.0
    if flag_cell(row.get(columns["tie"]), columns["tie"], empty=False) or first == second:
        y = 0.5
    elif layout.form == "sides":
        y = _won(row[columns["winner"]], columns["winner"], pair, schema)
    scores = [score_cell(row.get(columns[f]), columns[f]) for f in OF_PAIRS[2:]]
    if layout.form == "pair" and scores[0] is not None and scores[1] is not None:
        if scores[0] < scores[1] and y == 1.0:
            raise BadRow(
                f"{columns['score_chosen']!r} is below {columns['score_rejected']!r}: the response "
                "that was preferred would be the worse one"
            )
        y = 0.5 if scores[0] == scores[1] else y
    return first_preferred(Row("", asked, (first, second), y, "pairs", None, notes=notes), y)


def _won(value: object, column: str, pair: Sequence[str], schema: Schema) -> float:
    """Return which of a ``pair`` of columns won: 1 for the first, 0 for the second, 0.5 for a tie.

    Raises:
        BadRow: the label names neither, or is not on the declared scale.
    """
    if is_declared(schema, "pairs"):
        return side_on_scale(value, schema)
    try:
        return side_cell(value, column, pair)
    except BadRow:
        label, words = label_text(value), [label_text(column).split() for column in pair]
        named = [side for side, called in enumerate(words) if label in called]
        if label in SIDES and len(named) == 1:  # `left`, of a column `left_text`
            return 1.0 - named[0]
        if label in SIDES and not {*words[0], *words[1]} & {"left", "right", "first", "second"}:
            return SIDES[label]
        raise


def _listed(row: Mapping[str, object], columns: Mapping[str, str], schema: Schema) -> Row:
    """A row with `responses`, and one of `best`, `ranking` and `scores`."""
    responses = responses_cell(row.get(columns["responses"]), columns["responses"])
    asked, prompt = row.get(columns["prompt"]), ""
    if not (schema.no_prompt and is_empty(asked)):
        prompt = prompt_cell(asked, columns["prompt"])
    said = {each: row.get(columns[each]) for each in ("best", "ranking", "scores")}
    said = {each: cell for each, cell in said.items() if not is_empty(cell)}
    if ("best" in said and "ranking" in said) or not said:
        raise BadRow(
            f"a row with {columns['responses']!r} needs {columns['best']!r}, "
            f"{columns['ranking']!r} or {columns['scores']!r}; found "
            f"{'both' if said else 'neither'}. Name yours with --columns best=NAME"
        )
    if flag_cell(row.get(columns["tie"]), columns["tie"], empty=False):
        raise BadRow(f"{columns['tie']!r} is for pairs: list all that tie in {columns['best']!r}")
    best: list[int] = []
    ranks: list[float] = []
    if "best" in said:
        best = places_cell(said["best"], columns["best"], len(responses))
    elif "ranking" in said:
        ranks = ranks_cell(said["ranking"], columns["ranking"], len(responses))
    else:
        scores = scores_cell(said["scores"], columns["scores"], len(responses))
        if schema.kind == "pairs" and len(responses) == 2:
            first, second = responses if scores[0] >= scores[1] else responses[::-1]
            tie = scores[0] == scores[1] or first == second
            return Row("", prompt, (first, second), 0.5 if tie else 1.0, "pairs", None)
        ranks = [-score for score in scores] if schema.kind == "ranking" else []
        best = [place for place, score in enumerate(scores) if score == max(scores)]
    if ranks:  # the lowest first; what ties stays in its order, and is counted
        order = sorted(range(len(ranks)), key=ranks.__getitem__)
        sizes = Counter(ranks[place] for place in order)  # in order of first appearance
        groups = tuple(sizes.values()) if len(sizes) < len(ranks) else ()
        y = 1.0 / groups[0] if groups else 1.0
        ordered = tuple(responses[place] for place in order)
        return Row("", prompt, ordered, y, "ranking", None, groups)
    tied = {responses[place] for place in best}
    first_ones = [response for response in responses if response in tied]
    others = [response for response in responses if response not in tied]
    ordered = (*first_ones, *others)
    return Row("", prompt, ordered, 1.0 / len(first_ones), "top-1", None)
