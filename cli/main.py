"""The command line: ``murmuration COMMAND``.

Commands live in files of their own, and a file is imported when its command is called: help and
versions are shown at once. Whatever a user can mend ends in one line on stderr and a nonzero exit;
results go to stdout, progress to stderr.
"""

import sys
from difflib import get_close_matches
from typing import Annotated, Any

import click
import typer
from typer.core import TyperCommand, TyperGroup

from murmuration.api.quiet import look_for_work_where_idle, quiet_libraries
from murmuration.cli.commands import ALIASES, GROUPS, IN_A_CHECKOUT, imported
from murmuration.preference.escaping import visible
from murmuration.terminal.terminal import Terminal, guard_streams

# Before anything is imported that reads it.
if sys.argv[1:2] in (["align"], ["respond"], ["winrate"]):
    look_for_work_where_idle()
# What a benchmark compares with is measured as it comes, and is faster so on a quiet machine.
quiet_libraries(threads_sleep=sys.argv[1:2] != ["bench"])


#: How much alike an option that is meant and what was typed are at least.
_TYPO = 0.75
#: Options of other libraries, and what stands for them here.
_ELSEWHERE = {
    "--device": "There is no --device: a language model runs on a GPU if torch finds one (hide it "
    "with CUDA_VISIBLE_DEVICES=), and all else on the processor.",
}


class _Commands(TyperGroup):
    """Knows of each command what a list says of it, and imports the one that is called."""

    def __init__(self, **settings: Any) -> None:
        listed = {
            name: TyperCommand(
                name, help=about, rich_help_panel=group, hidden=group == IN_A_CHECKOUT
            )
            for group, commands in GROUPS.items()
            for name, about in commands.items()
        }
        super().__init__(**{**settings, "commands": listed})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """As Typer's; a command may have another name, too."""
        return super().get_command(ctx, ALIASES.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, imported(ALIASES.get(name, name)) if name else None, rest

    def invoke(self, ctx: click.Context) -> Any:
        """As Typer's; errors about options may quote file names that a shell filled in."""
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            # What is spelled almost alike, and not what merely shares letters.
            close = get_close_matches(error.option_name, error.possibilities or (), cutoff=_TYPO)
            message = visible(_ELSEWHERE.get(error.option_name, error.message))
            raise click.NoSuchOption(error.option_name, message, close, error.ctx) from None
        except click.ClickException as error:
            # Click calls it final, and prints it itself
            error.message = visible(error.message)  # pyright: ignore[reportAttributeAccessIssue]
            raise


app = typer.Typer(
    name="murmuration",
    cls=_Commands,
    help="Learn what a crowd prefers without learning what anyone in it prefers.",
    epilog=f"{IN_A_CHECKOUT}: {', '.join(GROUPS[IN_A_CHECKOUT])}.",
    no_args_is_help=True,
    add_completion=False,
    suggest_commands=False,  # which click does
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        from murmuration.server.versions import version as installed

        typer.echo(f"murmuration {installed()}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


#: What a user can mend and its exit code, by where the class is: those files need libraries that
#: take seconds to import, and whatever is raised has been imported.
_MENDABLE = (
    ("murmuration.preference.data.errors", "InputError", 2),
    ("murmuration.sims.runtimes.ray_cluster", "WorkerFailed", 1),
    ("murmuration.tuning.candidates", "CandidateFailed", 1),
    ("murmuration.strategies.protocol.availability", "RunAborted", 1),
)


def main() -> None:
    """Entry point of the console script."""
    guard_streams()
    try:
        app()
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        from rich.text import Text

        exact = " (exact: for the operator alone)" if hasattr(error, "operator_only") else ""
        line = Text.assemble(("error:", "bold red"), f" {error}", (exact, "dim"))
        Terminal(stderr=True, highlight=False).print(line, soft_wrap=True)
        sys.exit(code)


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can mend; None for others."""
    for module, name, code in _MENDABLE:
        known = sys.modules.get(module)
        if known is not None and isinstance(error, getattr(known, name)):
            return code
    return None


if __name__ == "__main__":
    main()
