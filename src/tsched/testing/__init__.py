"""Tools for those who test schedulers, policies and backends, ours or their own."""

from typing import TYPE_CHECKING, Any

from tsched.errors import MissingExtra
from tsched.testing.backend_suite import check_backend
from tsched.testing.play import Played, play, play_programs
from tsched.testing.virtual_loop import VirtualLoop, run_virtual

if TYPE_CHECKING:
    from tsched.testing.policy_suite import check_policy

__all__ = ["Played", "VirtualLoop", "check_backend", "check_policy", "play", "play_programs", "run_virtual"]


def __getattr__(name: str) -> Any:
    """`check_policy` needs Hypothesis, which the rest does not: it is imported when it is asked for."""
    if name != "check_policy":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from tsched.testing.policy_suite import check_policy
    except ImportError as missing:
        raise MissingExtra("check_policy needs Hypothesis: pip install 'tsched[testing]'") from missing
    return check_policy
