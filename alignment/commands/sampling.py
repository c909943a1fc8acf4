"""Options that say how a language model writes, of all commands that let one write."""

from typing import Annotated

from typer import Option

from murmuration.cli.options import WRITING

TEMPERATURE = "Sampling temperature; 0: always the likeliest token."
TOP_P = "Draw from the likeliest tokens that have this probability together."
MAX_NEW_TOKENS = "The most tokens of an answer."

Temperature = Annotated[float, Option(help=TEMPERATURE, rich_help_panel=WRITING)]
TopP = Annotated[float, Option(help=TOP_P, rich_help_panel=WRITING)]
WriterServer = Annotated[
    str,
    Option(
        "--writer",
        help="An OpenAI-compatible address up to /v1 (vLLM, llama.cpp, Ollama) that writes the "
        "answers; models are then named as there. Prompts are sent to it. Its key, if it needs "
        "one, is in MURMURATION_WRITER_KEY.",
        metavar="URL",
        show_default=False,
        rich_help_panel=WRITING,
    ),
]
MaxNewTokens = Annotated[int, Option(help=MAX_NEW_TOKENS, rich_help_panel=WRITING)]
