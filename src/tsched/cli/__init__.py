"""The command line: what it is made of, and how errors become exit codes.

Subcommands are imported when they are named. Results go to stdout, progress and complaints to stderr. Exit codes: 0 ok,
1 failed, 2 wrong usage or wrong input (one line says what and where), 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn

import click

from tsched.errors import AcquireRefused, DuplicateJob, Invalid, TschedError, UnknownGroup, UnknownJob, UnknownPlugin

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
BAD_INPUT = (Invalid, UnknownGroup, UnknownJob, UnknownPlugin, DuplicateJob, AcquireRefused)


class LazyGroup(click.Group):
    """A group whose commands are `name: ("module:attribute", help)`, imported on use."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), *self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
        """As click's, but every complaint is one line."""
        run = partial(super().main, *args, standalone_mode=False, **kwargs)
        return run_and_exit(run) if standalone_mode else run()


def run_and_exit(run: Callable[[], Any]) -> NoReturn:
    """Call, say in one line what went wrong, and end with the code that tells it."""
    try:
        code = run()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(USAGE)
    except click.UsageError as error:
        hint = f" (see '{error.ctx.command_path} --help')" if error.ctx is not None else ""
        complain(error.format_message() + hint)
        sys.exit(USAGE)
    except click.ClickException as error:
        complain(error.format_message())
        sys.exit(error.exit_code)
    except BAD_INPUT as error:
        complain(str(error))
        sys.exit(USAGE)
    except OSError as error:
        complain(f"output cannot be written: {error.strerror or error}")
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  what is left in the buffer has nowhere to go
        sys.exit(FAILED)
    except TschedError as error:
        complain(f"{type(error).__name__}: {error}")
        sys.exit(FAILED)
    except click.Abort:
        complain("interrupted")
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else OK)


def complain(text: str) -> None:
    """One line on stderr."""
    click.echo("error: " + " ".join(text.split()), err=True)


def print_version(ctx: click.Context, option: click.Parameter, value: bool) -> None:
    """The installed version, or that this is a checkout."""
    if value:
        try:
            click.echo(version("tsched"))
        except PackageNotFoundError:
            click.echo("not installed, run from a checkout")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    lazy={
        "sim": ("tsched.cli.sim:sim", "Predict what a workload would do under a policy."),
        "trace": ("tsched.cli.trace:trace", "Import, show, replay and export decision logs and recordings."),
        "policies": ("tsched.cli.plugins:policies", "List the policies that are installed."),
        "backends": ("tsched.cli.plugins:backends", "List the backends that are installed."),
        "serve": ("tsched.cli.serve:serve", "Run the orchestrator: give groups of devices to jobs in turns."),
        "agent": (
            "tsched.cli.agent:agent",
            "Run a device host's agent: park and restore jobs as an orchestrator orders.",
        ),
        "demo": ("tsched.cli.demo:demo", "Predict a recorded run under every policy, and run it live in virtual time."),
    },
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Show the version."
)
def main() -> None:
    """Time-slicing of post-training jobs over shared accelerators: simulate, inspect, compare."""
    if os.getcwd() not in sys.path:  # so that a policy in this folder can be named by its dotted path
        sys.path.append(os.getcwd())
