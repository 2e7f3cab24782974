"""Finding the driver that suspends processes, when the first process needs it."""

from __future__ import annotations

from collections.abc import Callable

from tsched.backends.process.binary import BinaryDriver
from tsched.backends.process.binding import BindingDriver
from tsched.backends.process.driver import MEND, CheckpointDriver
from tsched.backends.process.limits import Limits
from tsched.errors import MissingDriver


def find_driver(limits: Limits | None = None) -> CheckpointDriver:
    """The driver's calls through the Python packages, else through `cuda-checkpoint`.

    Raises:
        MissingDriver: neither works; the text says why, and what to install.
    """
    makers: tuple[Callable[[], CheckpointDriver], ...] = (BindingDriver, lambda: BinaryDriver(limits))
    reasons = []
    for make in makers:
        try:
            return make()
        except MissingDriver as error:
            reasons.append(str(error).removesuffix(f"; {MEND}"))
    raise MissingDriver(f"no process can be suspended: {'; '.join(reasons)}; {MEND}")


class Drivers:
    """The driver given, or else the one found; the search is made once, and again whenever one is needed."""

    def __init__(self, driver: CheckpointDriver | None, limits: Limits) -> None:
        self._driver, self._limits = driver, limits
        self._searched = driver is not None

    def present(self) -> CheckpointDriver | None:
        """None where there is none."""
        if not self._searched:
            self._searched = True
            try:
                self._driver = find_driver(self._limits)
            except MissingDriver:
                self._driver = None
        return self._driver

    def needed(self) -> CheckpointDriver:
        """Raises `MissingDriver` where there is none."""
        if self._driver is None:
            self._driver = find_driver(self._limits)
        return self._driver
