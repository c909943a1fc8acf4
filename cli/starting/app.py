"""``murmuration init app``: a Flower app of one's own."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from murmuration.sharing.flower_app import write_app


def app(
    folder: Annotated[
        Path, typer.Argument(help="Where; its name becomes the app's. It must be empty.")
    ],
    publisher: Annotated[
        str, typer.Option(help="Account at Flower Hub, if the app is to be published.")
    ] = "your-account",
) -> None:
    """Write a Flower app of your own.

    It has a data hook, settings, a test and a README.
    """
    for name in write_app(folder, publisher):
        print(folder / name)
    print(f"next: cd {shlex.quote(str(folder))}, and README.md says how to run it")
