"""Options that say how a language model writes, of all commands that let one write."""

from typing import Annotated

import typer

_PANEL = "How it writes"

Temperature = Annotated[
    float,
    typer.Option(
        help="Sampling temperature; 0: always the likeliest token.", rich_help_panel=_PANEL
    ),
]
TopP = Annotated[
    float,
    typer.Option(
        help="Draw from the likeliest tokens that have this probability together.",
        rich_help_panel=_PANEL,
    ),
]
MaxNewTokens = Annotated[
    int, typer.Option(help="The most tokens of an answer.", rich_help_panel=_PANEL)
]
