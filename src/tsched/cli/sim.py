"""`tsched sim`: predictions."""

from __future__ import annotations

import click

from tsched.cli import LazyGroup


@click.group(
    cls=LazyGroup,
    lazy={
        "run": (
            "tsched.cli.run:run",
            "Simulate workloads under policies; compare with each other and the best possible.",
        )
    },
)
def sim() -> None:
    """Predict what a workload would do under a policy."""
