"""``murmuration init``: something to begin with."""

import typer

from murmuration.cli.starting.app import app
from murmuration.cli.starting.base import base
from murmuration.cli.starting.population import population
from murmuration.privacy.plugins import brought

init = typer.Typer(
    help="Write something to begin with: an app, a population, a base.", no_args_is_help=True
)
init.command("app")(app)
init.command("population")(population)
init.command("base")(base)
for _name, _command in brought("murmuration.init").items():
    init.command(_name)(_command.load())
