"""What a run learns: a reward from judgements, or a language model from texts.

- `reward`: a number for a prompt and a response, from judgements;
- `text`: the next token of users' own texts (Charles et al. 2024);
- `sft`: the next token of the responses in judgements, given the prompt (supervised fine-tuning).

Each reads rows of its own kind.
"""

from preference.judgements import Judgements, OnBadRows
from preference.loading import load_judgements, load_texts, parse_columns
from preference.schema import PAIRS, Schema
from preference.user_texts import UserTexts

TASKS = ("reward", "text", "sft")

#: What users have, grouped by user.
Data = Judgements | UserTexts


def load_data(
    task: str,
    source: str,
    columns: str = "",
    on_bad_rows: OnBadRows = "refuse",
    schema: Schema = PAIRS,
) -> Data:
    """Users' rows of a source, as a task reads them; ``columns`` as `--columns` is written.

    Raises:
        InputError: one line that names the file and line, or the source, and what is wrong.
    """
    load = load_texts if task == "text" else load_judgements
    renamed = parse_columns(columns)
    return load(source, columns=renamed, on_bad_rows=on_bad_rows, schema=schema)
