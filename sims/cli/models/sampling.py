"""Options that say how a language model writes, of all commands that let one write."""

from typing import Annotated

import typer

_PANEL = "How it writes"

Temperature = Annotated[
    float, typer.Option(help="What logits are divided by; 0: likeliest.", rich_help_panel=_PANEL)
]
TopP = Annotated[float, typer.Option(help="Likeliest tokens alone.", rich_help_panel=_PANEL)]
MaxNewTokens = Annotated[
    int, typer.Option(help="After so many an answer breaks off.", rich_help_panel=_PANEL)
]
