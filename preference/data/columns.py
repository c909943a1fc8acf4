"""Which column of a row is which field.

Columns have the fields' own names, or those that `--columns` gives. Beside that, columns in which
collections usually keep who judged are known: a row that has exactly one of them, and no `user_id`,
is that one's. This is decided for each row by its own columns, so that nobody's row decides how
another's is read; that it was done is said.
"""

from collections.abc import Mapping

from murmuration.preference.data.cells import BadRow, shortened

#: Where people keep who judged, besides `user_id`.
USER_COLUMNS = (
    "annotator_id",
    "annotator",
    "worker_id",
    "worker",
    "participant_id",
    "participant",
    "rater_id",
    "rater",
    "labeler_id",
    "labeler",
    "userid",
    "user",
    "judge",
)
#: What may be a prompt under another name: where one is there, none is made of shared words.
PROMPT_COLUMNS = ("question", "instruction", "query", "input", "context", "post", "messages")
SHARED_TURNS = "no column 'prompt': it is the turns that 'chosen' and 'rejected' share"
SHARED_WORDS = "no column 'prompt': it is the words that 'chosen' and 'rejected' both begin with"
RANKING_COLUMNS = ("ranking", "ranks", "rank")
#: Where a response stands that was liked or not, as `label` says.
RATED_COLUMNS = ("completion", "response", "messages")


def with_user(row: Mapping[str, object], names: Mapping[str, str]) -> Mapping[str, str]:
    """The names of a row's columns, with that of its user where it has a known one of its own.

    Raises:
        BadRow: several columns may be the user's.
    """
    if names.get("user_id") != "user_id" or "user_id" in row:
        return names
    there = [column for column in USER_COLUMNS if column in row and column not in names.values()]
    if len(there) > 1:
        raise BadRow(
            f"columns {', '.join(map(repr, there))} may each say who judged: name the one with "
            f"--columns user_id={there[0]}"
        )
    return {**names, "user_id": there[0]} if there else names


def rated_columns(row: Mapping[str, object], names: Mapping[str, str]) -> Mapping[str, str] | None:
    """The names of a rating's columns: the response's (``completion``) and its ``label``'s; None
    for a row that is none.

    It is one where these two are there, or were asked for, and nothing that the response was
    compared with.
    """
    asked = {field: names[field] for field in ("completion", "label") if field in names}
    if not asked:
        compared = (names["chosen"], names["rejected"], names.get("responses", "responses"))
        if "label" not in row or any(column in row for column in compared):
            return None
    there = [column for column in RATED_COLUMNS if column in row]
    if not asked and not there:
        return None
    return {"completion": there[0] if there else "completion", "label": "label"} | asked


def may_lack_prompt(row: Mapping[str, object], names: Mapping[str, str]) -> bool:
    """Return whether a pair's two columns are there and none of its prompt, by this or a likely
    name.

    A likely name does not matter where whole conversations are given.
    """
    if names["prompt"] in row or names["prompt"] != "prompt":
        return False
    if not {names["chosen"], names["rejected"]} <= row.keys():
        return False
    return not (_is_text(row, names) and any(column in row for column in PROMPT_COLUMNS))


def _is_text(row: Mapping[str, object], names: Mapping[str, str]) -> bool:
    """Return whether what was preferred is plain text, and no conversation."""
    chosen = row[names["chosen"]]
    return isinstance(chosen, str) and not chosen.lstrip().startswith(("Human:", "["))


def taken(row: object, names: Mapping[str, str]) -> list[str]:
    """Return what is said of a row that was read otherwise than by the fields' own columns."""
    if not isinstance(row, Mapping):
        return []
    result = []
    if "user_id" in names and (column := with_user(row, names)["user_id"]) != names["user_id"]:
        result.append(f"who judged is read from the column {column!r}")
    if "prompt" in names and may_lack_prompt(row, names):
        result.append(SHARED_WORDS if _is_text(row, names) else SHARED_TURNS)
    return result


def check_columns(row: Mapping[str, object], needed: Mapping[str, str]) -> None:
    """BadRow, with the columns that there are, unless a row has those of all ``needed`` fields."""
    missing = [field for field, column in needed.items() if column not in row]
    if not missing:
        return
    result = shortened(", ".join(str(column) for column in row)) or "none"
    if missing == ["user_id"] and needed["user_id"] == "user_id":
        raise BadRow(
            f"no column says who judged; the columns are: {result}. Whoever judged is whom privacy "
            "is promised to: name the column with --user-column NAME. If there is none, "
            "--one-user-per-row counts each row as a user of its own, and then protects single "
            "rows only, not people who have several"
        )
    wanted = ", ".join(repr(needed[field]) for field in missing)
    example = ",".join(f"{field}=NAME" for field in missing)
    sided = ""
    if {"chosen", "rejected"} <= {*missing}:
        sided = (
            "; where a column says which of two responses won, "
            "response_a=NAME,response_b=NAME,winner=NAME instead of the last two"
        )
    raise BadRow(
        f"no column {wanted}; the columns are: {result}. Name yours with --columns {example}{sided}"
    )


def told(notes: Mapping[str, int]) -> tuple[str, ...]:
    """Return what was ``taken``, and in how many rows."""
    return tuple(f"{note} ({count} rows)" for note, count in notes.items())
