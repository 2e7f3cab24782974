"""The command line: what it is made of, and how errors become exit codes.

Results go to stdout, progress and complaints to stderr. Exit codes: 0 ok, 1 failed, 2 wrong usage or wrong input (one
line says what and where), 130 interrupted. Subcommands are imported when they are named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

import click

from openrl.access import UnknownKey
from openrl.config import ConfigInvalid
from openrl.errors import OpenRLError, RequestError, StoreInvalid

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
BAD_INPUT = (ConfigInvalid, RequestError, StoreInvalid, UnknownKey)


class OneLineGroup(click.Group):
    """A group whose complaints are one line; its commands are `name: ("module:attribute", help)`, imported on use."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.lazy]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        return getattr(import_module(module), attribute)  # type: ignore[no-any-return]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list in `--help`, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.lazy.items()])

    def main(self, *args: Any, standalone_mode: bool = True, **kwargs: Any) -> Any:
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
    except (OpenRLError, OSError) as error:
        complain(str(error))
        sys.exit(FAILED)
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        sys.exit(INTERRUPTED)
    sys.exit(code if isinstance(code, int) else OK)


def complain(text: str) -> None:
    """One line on stderr."""
    click.echo("error: " + " ".join(text.split()), err=True)


@click.command(
    cls=OneLineGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    lazy={
        "serve": ("openrl.cli.serve:serve", "Serve models to fine-tune and sample, until stopped."),
        "keys": ("openrl.cli.keys:keys", "Create, list and revoke API keys."),
        "jobs": ("openrl.cli.jobs:jobs", "List and cancel the sessions of a running server."),
        "checkpoints": ("openrl.cli.stored:checkpoints", "List, publish and delete what a running server has stored."),
        "doctor": ("openrl.cli.doctor:doctor", "Check that this machine can serve."),
    },
)
def main() -> None:
    """A fine-tuning service for the tinker SDK: trains and samples models on this machine."""
