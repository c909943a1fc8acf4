"""``murmuration init``: something to begin with."""

import shlex
import time
from pathlib import Path
from typing import Annotated

import click
import typer

from murmuration.cli.options import Json, meaning, print_json
from murmuration.preference.data.errors import InputError
from murmuration.privacy.plugins import brought
from murmuration.sharing.flower_app import write_app
from murmuration.sims.population.population import Population, write
from murmuration.sims.population.tiny_language_model import KINDS, TinyBase, build, public_texts
from murmuration.terminal.terminal import Terminal

_DEFAULT = TinyBase()

init = typer.Typer(
    help="Write something to begin with: an app, a population, a base.", no_args_is_help=True
)


@init.command()
def app(
    folder: Annotated[
        Path, typer.Argument(help="Where; its name becomes the app's. It must be empty.")
    ],
    publisher: Annotated[
        str, typer.Option(help="Account at Flower Hub, if the app is to be published.")
    ] = "your-account",
) -> None:
    """Write a Flower app of your own.

    It has data, a ServerApp to be changed, settings and a README.
    """
    for name in write_app(folder, publisher):
        print(folder / name)
    print(f"next: cd {shlex.quote(str(folder))}, and README.md says how to run it")


@init.command()
def population(
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} Folder for the files.")],
    users: Annotated[int, typer.Option(help=f"{meaning('users')} In the training split.")] = 2500,
    seed: Annotated[int, typer.Option(help=f"{meaning('seed')} Which population.")] = 0,
) -> None:
    """Write judgements of a synthetic population, and its truth.

    Files: train, test and unseen topics.
    """
    try:
        write(out, Population(users=users, seed=seed))
    except (ValueError, OSError) as error:
        raise InputError(f"--out {out}: {error}") from None
    print(f"wrote {', '.join(sorted(path.name for path in out.iterdir()))} to {out}")


@init.command()
def base(
    *,
    out: Annotated[Path, typer.Option(help=f"{meaning('out')} Folder for the model.")],
    kind: Annotated[
        str,
        typer.Option("--architecture", help="Architecture.", click_type=click.Choice(KINDS)),
    ] = _DEFAULT.kind,
    exchanges: Annotated[int, typer.Option(help="Public exchanges to train on.", min=1)] = 10_000,
    epochs: Annotated[
        int, typer.Option(help="Passes over the data. Over the exchanges.", min=1)
    ] = _DEFAULT.epochs,
    batch: Annotated[
        int, typer.Option("--batch-size", help="Batch size of a step. In answers.", min=1)
    ] = _DEFAULT.batch,
    rate: Annotated[
        float,
        typer.Option("--learning-rate", help=f"{meaning('learning_rate')} The largest."),
    ] = _DEFAULT.rate,
    seed: Annotated[
        int, typer.Option(help=f"{meaning('seed')} Of initial weights and order.")
    ] = _DEFAULT.seed,
    as_json: Json = False,
) -> None:
    """Train a small language model on embedded public text.

    No labels and no user's text are used. The folder is for `murmuration run --base`.
    """
    shape = TinyBase(kind=kind, epochs=epochs, batch=batch, rate=rate, seed=seed)
    console, started = Terminal(stderr=True), time.monotonic()
    with console.status("writing public texts") as status:

        def progress(step: int, steps: int, loss: float) -> None:
            if step % 20 == 0 or step == steps:
                status.update(f"step {step:,} of {steps:,}, loss {loss:.2f}")

        loss = build(out, shape, public_texts(Population(), exchanges), progress)
    seconds = round(time.monotonic() - started, 1)
    if as_json:
        print_json({"out": str(out), "loss": loss, "seconds": seconds})
    else:
        print(f"wrote a language model to {out}: loss {loss:.2f} a word, {seconds:.0f} s")


for _name, _command in brought("murmuration.init").items():
    init.command(_name)(_command.load())
