"""`tsched policies`, `tsched backends`: what is installed, what it claims, which options it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from tsched import plugins
from tsched.cli.output import print_json, print_table
from tsched.errors import TschedError

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")


@click.command()
@as_json
def policies(as_json: bool) -> None:
    """List the policies that are installed, their order and their options."""
    found = [_described(name, plugins.policy_factory) for name in plugins.policy_names()]
    _show(found, as_json)


@click.command()
@as_json
def backends(as_json: bool) -> None:
    """List the backends that are installed, and their options."""
    found = [_described(name, plugins.backend_factory) for name in plugins.backend_names()]
    _show(found, as_json)


def _described(name: str, find: Callable[[str], Callable[..., Any]]) -> dict[str, Any]:
    """One plug-in; one that cannot be loaded is listed with the reason."""
    try:
        factory = find(name)
    except TschedError as error:
        return {"name": name, "error": str(error)}
    text = inspect.getdoc(factory) or ""
    about: dict[str, Any] = {"name": name, "summary": " ".join(text.split("\n\n")[0].split())}
    about["options"] = {key: _default(option) for key, option in plugins.options(factory).items()}
    if isinstance(may_starve := getattr(factory, "may_starve", None), bool):
        about["may_starve"] = may_starve
    return about


def _default(option: inspect.Parameter) -> Any:
    """The default, as JSON can say it."""
    if option.default is option.empty or option.default is None:
        return None
    if isinstance(option.default, bool | int | float | str):
        return option.default
    return getattr(option.default, "__name__", repr(option.default))


def _show(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = []
    for about in found:
        options = ", ".join(
            key if default is None else f"{key}={default}" for key, default in about.get("options", {}).items()
        )
        starves = {True: "may starve", False: "bounded", None: ""}[about.get("may_starve")]
        rows.append([about["name"], about.get("summary") or about.get("error", ""), starves, options])
    if any(row[2] for row in rows):
        print_table(["name", "what it does", "waiting", "options"], rows, numeric_from=4)
    else:
        print_table(["name", "what it does", "options"], [[row[0], row[1], row[3]] for row in rows], numeric_from=3)
