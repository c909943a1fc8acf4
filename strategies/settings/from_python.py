"""Public functions as Python has them: what commands call options are arguments here.

The names that ``import murmuration`` gives come through ``for_python``. Commands call the same
functions by the modules in which they stand, so that one text of an error serves both: it is
written with options, and what a Python caller sees of it names arguments.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from functools import cache, wraps
from typing import Any, Literal, TypeVar

from murmuration.preference.data.errors import reword
from murmuration.privacy.adjacency import Adjacency
from murmuration.strategies.settings.catalogue import (
    DECLARED,
    of_simulations,
    of_strategies,
    panel_of,
)
from murmuration.strategies.settings.declaration import (
    DATA,
    OUTPUT,
    PROMISE,
    RUNTIME,
    about,
    also_taken,
    declared,
)

Function = TypeVar("Function", bound=Callable[..., Any])

#: What an argument does that is no setting, because it is short for one.
_USER_COLUMN = 'Column that says who judged: short for ``columns={"user_id": …}``.'
#: Options whose arguments have other names, or are no arguments.
_ARGUMENTS = {
    "as": "judgements",
    "epsilons": "epsilon",
    "online": "murmuration.online()",
}
Fields = list[Field[Any]]
#: By a function's name the settings that it takes (`takes`), if these are not those of any run,
#: and whether it tells apart that one is not given.
_TAKES: dict[str, tuple[Callable[[], Fields], bool]] = {}
#: Values of settings that declare no choices.
_WORDS = {
    "features": ("auto", "hashing", "minilm", "smollm2", "strengths"),
    "on_bad_rows": ("refuse", "skip"),
    "runtime": ("local", "ray"),
}

_NUMBER = re.compile(r"\d+(\.\d+)?(e-?\d+)?")
#: A whole command of a shell, which stays one.
_COMMAND = r"(?:murmuration \w+|pip install|ray start)(?: (?:--[a-z]|[A-Z\d./<'])\S*)+"
_NAMES = r"--columns \w+=\w+(?:[.,=]\w+)*"
_GRID = r"--grid \w+=[\w.]+(?:,[\w.]+)*"
_OPTION = r"--[a-z][a-z-]*[a-z](?:[ =](?:-?\d+\.\.-?\d+|(?:[\w^-]|[.:#/](?=\w))+))?"
_SPELLED = re.compile(rf"(?<![\w'\"-])(?:{_COMMAND}|{_NAMES}|{_GRID}|{_OPTION})")


def in_python(text: str) -> str:
    """A text about options as one about arguments: ``--user-column NAME`` becomes
    ``user_column="NAME"``. Whole commands are unchanged.
    """
    return _SPELLED.sub(lambda part: _argument(part.group()), text)


def _argument(spelled: str) -> str:
    if not spelled.startswith("--"):
        return spelled
    option, space, value = spelled.partition(" " if " " in spelled else "=")
    name = option.removeprefix("--").replace("-", "_")
    if name == "columns" and "=" in value:
        return f'columns="{value}"'
    if name == "grid" and "=" in value:
        each, _, values = value.partition("=")
        return f'grid={{"{each}": [{", ".join(values.split(","))}]}}'
    argument = _ARGUMENTS.get(name, name)
    field = DECLARED.get(name)
    if field is not None and field.default is False:
        return f"{argument}=True{space}{value}"
    if argument != name and not argument.isidentifier():
        return argument if value.isupper() else f"{argument}{space}{value}"
    if _NUMBER.fullmatch(value):
        return f"{argument}={value}"
    if (value and value in _values(name)) or re.fullmatch(r"[A-Z]{2,}\S*|n\^\S+|\d\S*", value):
        return f'{argument}="{value}"'
    return f"{argument}{space}{value}"


@cache
def _values(name: str) -> tuple[str, ...]:
    """The possible values of a setting that are words."""
    if name == "strategy":
        return tuple(of_strategies())
    if name == "adjacency":
        return tuple(Adjacency)
    field = DECLARED.get(name)
    choices = () if field is None else (*about(field).choices, str(field.default))
    return (*choices, *_WORDS.get(name, ()))


def warn(text: str) -> None:
    """Warn the caller, at the caller's line; in terms of Python unless a command called."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if not module.startswith("murmuration.") or _is_command(module):
            break
        frame, level = frame.f_back, level + 1
    commanded = _is_command(str(frame.f_globals.get("__name__", "")))
    warnings.warn(text if commanded else in_python(text), stacklevel=level)


def _is_command(module: str) -> bool:
    package, *rest = module.split(".")
    return package == "murmuration" and not {"cli", "commands"}.isdisjoint(rest)


def takes(
    fields: Callable[[], Fields], *, optional: bool = False
) -> Callable[[Function], Function]:
    """Decorator: the function's ``**`` keywords are these fields, and not the settings of any run;
    None is the default of each if ``optional``.
    """

    def of(function: Function) -> Function:
        _TAKES[function.__name__] = fields, optional
        return function

    return of


def of_strategy(name: str) -> Fields:
    """The settings of a strategy that learns no model, and of its run."""
    settings = of_strategies()[name]
    own = {*also_taken(settings), *(each.name for each in declared(settings))}
    return [
        field
        for field in of_simulations()
        if field.name in own or panel_of(field) in (DATA, PROMISE, RUNTIME, OUTPUT)
    ]


def for_python(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a public function so that its errors name arguments, and its signature and help list
    each setting that it takes.
    """

    @wraps(function)
    def call(*arguments: Any, **given: Any) -> Any:
        try:
            return function(*arguments, **given)
        except Exception as error:
            reword(error, in_python)
            raise

    call.__module__ = "murmuration"  # where it is found again by its name
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        fields, optional = _TAKES.get(function.__name__, (of_simulations, False))
        settings = [each for each in fields() if each.name not in signature.parameters]
        parameters[-1:] = _parameters(settings, optional)
        call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        call.__doc__ = f"{inspect.getdoc(function)}\n\n{_listed(settings)}"
    return call


def _parameters(settings: Iterable[Field[Any]], optional: bool) -> list[inspect.Parameter]:
    result = []
    for field in settings:
        choices = about(field).choices
        kinds: Any = Literal[choices] if choices else type(field.default)
        if field.name == "columns":
            kinds = str | Mapping[str, str]
        default, kinds = (None, kinds | None) if optional else (field.default, kinds)
        result.append(_parameter(field.name, default, kinds))
        if field.name == "columns":
            result.append(_parameter("user_column", None, str | None))
    return result


def _parameter(name: str, default: object, kinds: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=default, annotation=kinds)


def _listed(settings: Iterable[Field[Any]]) -> str:
    panels: dict[str, list[str]] = {}
    for field in settings:
        lines = panels.setdefault(panel_of(field), [])
        lines += _line(field.name, repr(field.default), about(field).help)
        if field.name == "columns":
            lines += _line("user_column", "None", _USER_COLUMN)
    return "\n\n".join("\n".join([f"{panel}:", *lines]) for panel, lines in panels.items())


def _line(name: str, default: str, help_: str) -> list[str]:
    text = in_python(help_ if "[default" in help_ else f"{help_} [default: {default}]")
    return textwrap.wrap(f"{name}: {text}", 100, initial_indent=4 * " ", subsequent_indent=8 * " ")
