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
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
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
    with_user,
)
from murmuration.preference.data.covariates import SIDES, covariate_columns, covariates_of
from murmuration.preference.data.errors import BadRow as BadRow
from murmuration.preference.data.errors import InputError as InputError
from murmuration.preference.data.judgement_row import OtherKind, Row, check_count, check_row
from murmuration.preference.data.label_meanings import (
    SHARED_WORDS,
    first_preferred,
    is_declared,
    meaning,
    without_prompt,
)
from murmuration.preference.data.schema import Schema
from murmuration.preference.data.sources import Placed

_NOT_AT_NODES = (
    "a single rating, and pairs are declared: which pairs ratings make would tell what they were, "
    "so a node makes none; declare kind=thumbs, or give it pairs"
)
NEITHER = "a rating that says neither up nor down is not used"
#: So many different judgements, and sets of columns, are remembered.
_MOST_KEPT = 2**14
SHARED_TURNS = "no column 'prompt': it is the turns that 'chosen' and 'rejected' share"


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
        self._schema, self._at_node = schema, at_node
        self._rows_of = Counter[str]()  # of a user, or of what was shown where a row is a user
        self._texts: dict[str, str] = {}  # one object per distinct text: prompts recur
        # Votes on few items are alike: what was read is not read again.
        self._users: dict[str, str] = {}
        self._columns: dict[tuple[str, ...], tuple[str, list[str]]] = {}
        self._covariates = schema.covariate_names
        self._known_columns = KNOWN_COLUMNS.union(
            PROMPT_COLUMNS, self._names.values(), covariate_columns(self._covariates)
        )
        self._read: dict[tuple[object, ...], Row] = {}
        self._file = ""

    def read(self, row: Mapping[str, object] | BadRow, file: str = "") -> tuple[str, Row] | BadRow:
        """Return whose a row is and its judgement, which says in which ``file`` it stands, or why
        it is none.

        Rows of a file that say the same are one object, which names no user; of thumbs each has its
        own.
        """
        if file != self._file:
            self._file, self._read = file, {}
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
            user_id = _shown(judged)
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
            return None, None
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
                if type(cell) is str:
                    self._users[cell] = user = self._texts.setdefault(user, user)
            cells = [row[each] for each in parts[1]]
            kinds = [*map(type, cells)]
            key = (present, *cells)
            if kinds.count(str) < len(kinds):
                # 1, 1.0 and True are equal, and a cell may hold one of them only.
                key = (*key, *kinds)
            hash(key)
        except Exception:  # a cell may hold anything
            return readable_user(row, self._names), None
        return user, key

    def _judged(self, row: Mapping[str, object] | BadRow, key: tuple[object, ...] | None) -> Row:
        """A row's judgement as it is declared, to be found again by its key.

        Raises:
            BadRow: it is none.
        """
        draft = draft_row(row, self._names, self._schema.kind)
        if self._covariates:
            draft = replace(draft, covariates=self._read_covariates(row, draft))
        judged = self._declared(draft)
        check_row(judged, self._schema)
        if judged.kind != self._schema.kind and self._at_node:
            raise BadRow(_NOT_AT_NODES)
        judged = replace(
            judged,
            prompt=self._texts.setdefault(judged.prompt, judged.prompt),
            responses=tuple(self._texts.setdefault(text, text) for text in judged.responses),
            file=self._file,
        )
        if key is not None and len(self._read) < _MOST_KEPT:
            judged = self._read[key] = replace(judged, user_id="")
        return judged

    def _read_covariates(self, row: Mapping[str, object] | BadRow, draft: Row) -> tuple[float, ...]:
        """Return those of the first response of a pair, in the order of its columns."""
        assert not isinstance(row, BadRow)  # of which there is no draft
        layout = layout_of(row, self._names)
        if layout.form not in ("pair", "sides"):
            raise BadRow("--covariates are of pairs in two columns")
        sides = SIDES[0]
        if layout.form == "sides":
            first, second = (
                layout.columns[each].rpartition("_")[2] for each in ("response_a", "response_b")
            )
            sides = first, second
        result = covariates_of(row, self._covariates, sides)
        same = draft.responses[0] == draft.responses[1]
        return (0.0,) * len(result) if same else result

    def _declared(self, judged: Row) -> Row:
        """A row with what is declared of its label and its prompt; BadRow for a label that is not
        on the declared scale."""
        if judged.whole and self._schema.no_prompt:
            judged = without_prompt(judged)
        if judged.prompt_problem and self._at_node:
            raise BadRow(judged.prompt_problem)
        if judged.label and not is_declared(self._schema, judged.kind):
            return judged if judged.label_problem else first_preferred(judged, judged.y)
        if judged.label:
            y = meaning(judged.label, judged.kind, self._schema)
            return replace(first_preferred(judged, y), label="")
        return judged

    def advise(self, other: OtherKind, rows: Iterable[Placed]) -> BadRow:
        """Return what is wrong with a row of another kind, and what would suit it and those after
        it."""
        first, most = other.row, len(other.row.responses)
        for _, _, row in rows:
            with suppress(BadRow):
                judged = parse_row(row, self._names, self._schema.kind)
                most = max(most, len(judged.responses) if judged.kind == first.kind else 0)
        suits = Schema(first.kind, most if first.kind != "thumbs" else 0).options or "--kind pairs"
        reason = BadRow(
            f"{other}, and {self._schema.kind} are declared: pass {suits}, and keep pairs, the "
            "best of several, rankings and thumbs apart"
        )
        reason.user_id = other.user_id
        return reason


def _shown(judged: Row) -> str:
    """Return what stands for a row without a user: what was shown, and no label, which the name
    would tell."""
    shown = (judged.prompt, *sorted(judged.responses))
    return hashlib.blake2b(repr(shown).encode(), digest_size=16).hexdigest()


def parse_row(
    row: Mapping[str, object] | BadRow, names: Mapping[str, str], declared: Kind = "pairs"
) -> Row:
    """Return a row's judgement.

    `names` maps the fields of `REQUIRED`, and others that were asked for, to the row's own keys.
    What was asked for must be there; other fields have their own names and may be absent, and so
    may the prompt of a pair whose texts share it. Without a `user_id` in `names` the row is
    nobody's: the id is empty. Of `scores` a judgement of the ``declared`` kind is made. Numbers
    become ids by their value: 7 and 7.0 are the user `7`. The same text twice among the best is a
    tie however it is marked: nobody can prefer a text to itself, and real collections hold such
    rows.

    Raises:
        BadRow: anything that is missing, empty, not text, or contradicts itself.
    """
    judged = draft_row(row, names, declared)
    if problem := judged.prompt_problem or judged.label_problem:
        raise BadRow(problem)
    return first_preferred(judged, judged.y) if judged.label else judged


def draft_row(
    row: Mapping[str, object] | BadRow, names: Mapping[str, str], declared: Kind = "pairs"
) -> Row:
    """Return what ``parse_row`` does, but leave open what depends on the other rows."""
    if isinstance(row, BadRow):
        raise row
    if not isinstance(row, Mapping):
        raise BadRow(f"expected an object with named fields, found {type(row).__name__}")
    try:
        layout = layout_of(row, names)
        return _judgement(row, layout, declared)
    except BadRow:
        raise
    except Exception as error:  # a cell may hold anything
        raise BadRow(f"a cell that cannot be read ({type(error).__name__})") from None


def readable_user(row: object, names: Mapping[str, str]) -> str | None:
    """Return whom a row is of, whatever else is wrong with it; None if it names nobody."""
    if not isinstance(row, Mapping):
        return None
    try:
        column = with_user(row, names)["user_id"]
        return user_cell(row.get(column), column)
    except Exception:  # a cell may hold anything
        return None


_NO_FLIP = {
    "thumbs": "is about a choice among responses, not about a single one",
    "ranking": "is about one label, not about a ranking",
}


def _judgement(row: Mapping[str, object], layout: Layout, declared: Kind) -> Row:
    columns = layout.columns
    if layout.missing:
        raise missing_columns(row, layout.missing)
    if layout.form in ("pair", "sides"):
        judged = _pair(row, layout)
    elif layout.form == "list":
        judged = _listed(row, columns, declared)
    else:
        prompt, response, prompt_problem = _rated(row, layout)
        label, problem = label_text(row[columns["label"]]), ""
        try:
            y = float(flag_cell(row[columns["label"]], columns["label"]))
        except BadRow as reason:
            if not label:
                raise
            y, problem = math.nan, str(reason)
        judged = Row(
            *("", prompt, (response,), y, "thumbs", None),
            label=label,
            label_problem=problem,
            whole=(response,) if prompt_problem else (),
            prompt_problem=prompt_problem,
        )
    user_id = ""
    if "user_id" in columns:
        user_id = user_cell(row[columns["user_id"]], columns["user_id"])
    flip, column = row.get(columns["flip_probability"]), columns["flip_probability"]
    if judged.kind in _NO_FLIP and not is_empty(flip):
        raise BadRow(f"{column!r} {_NO_FLIP[judged.kind]}")
    flip_probability = flip_cell(flip, column, len(judged.responses))
    notes = layout.notes + judged.notes
    return Row(
        user_id,
        judged.prompt,
        judged.responses,
        judged.y,
        judged.kind,
        flip_probability,
        judged.groups,
        notes,
        judged.label,
        judged.label_problem,
        judged.whole,
        judged.prompt_problem,
    )


def _rated(row: Mapping[str, object], layout: Layout) -> tuple[str, str, str]:
    """Prompt and response of a rating, and what is wrong with its prompt; then it is empty."""
    column = layout.columns["completion"]
    prompt = layout.columns["prompt"] if layout.prompted else None
    bare = prompt is None or is_empty(row[prompt])
    if not (bare and is_plain_text(row[column])):
        return *rated_exchange(row, column, prompt), ""
    if layout.maybe_prompted:
        raise missing_columns(row, {"prompt": "prompt"})
    try:
        rated_exchange(row, column, prompt)  # which says what is wrong with it
    except BadRow as reason:
        return "", response_cell(row[column], column), str(reason)
    raise AssertionError("a response without a prompt was read")


def _pair(row: Mapping[str, object], layout: Layout) -> Row:
    """Two responses, of which the first was preferred, or in the order of their columns, if a label
    says which."""
    columns = layout.columns
    pair = (columns["chosen"], columns["rejected"])
    if layout.maybe_prompted and is_plain_text(row[pair[0]]):
        raise missing_columns(row, {"prompt": "prompt"})
    prompt = columns["prompt"] if layout.prompted else None
    lacking = prompt is None or is_empty(row[prompt])
    asked, first, second = exchange(row, pair, None if lacking else prompt)
    whole, prompt_problem = () if asked else (first, second), ""
    if whole:
        try:
            if prompt is not None:
                prompt_cell(row[prompt], prompt)  # which says what is wrong with it
            asked, first, second = shared_words(first, second, pair)
        except BadRow as reason:
            prompt_problem = str(reason)
    y, label, label_problem = 1.0, "", ""
    if flag_cell(row.get(columns["tie"]), columns["tie"], empty=False) or first == second:
        y = 0.5
    elif layout.form == "sides":
        cell, column = row[columns["winner"]], columns["winner"]
        label = label_text(cell)
        try:
            y = side_cell(cell, column, pair)
        except BadRow as reason:
            if not label:
                raise
            y, label_problem = math.nan, str(reason)
    scores = [score_cell(row.get(columns[f]), columns[f]) for f in OF_PAIRS[2:]]
    if layout.form == "pair" and scores[0] is not None and scores[1] is not None:
        if scores[0] < scores[1] and y == 1.0:
            raise BadRow(
                f"{columns['score_chosen']!r} is below {columns['score_rejected']!r}: the response "
                "that was preferred would be the worse one"
            )
        y = 0.5 if scores[0] == scores[1] else y
    notes = (SHARED_WORDS,) if whole else (SHARED_TURNS,) if prompt is None else ()
    return Row(
        *("", asked, (first, second), y, "pairs", None),
        notes=notes,
        label=label,
        label_problem=label_problem,
        whole=whole,
        prompt_problem=prompt_problem,
    )


def _listed(row: Mapping[str, object], columns: Mapping[str, str], declared: Kind) -> Row:
    """A row with `responses`, and one of `best`, `ranking` and `scores`."""
    responses = responses_cell(row.get(columns["responses"]), columns["responses"])
    prompt = prompt_cell(row.get(columns["prompt"]), columns["prompt"])
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
        if declared == "pairs" and len(responses) == 2:
            first, second = responses if scores[0] >= scores[1] else responses[::-1]
            tie = scores[0] == scores[1] or first == second
            return Row("", prompt, (first, second), 0.5 if tie else 1.0, "pairs", None)
        ranks = [-score for score in scores] if declared == "ranking" else []
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
