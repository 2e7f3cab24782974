"""Which processes belong to which job here: those that were registered, and those that the host attributes to it.

It remembers over restarts. It never stops a process, and takes none from another job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tsched.agent.attribution import GROUP, JOB, named_by
from tsched.agent.state_file import Key, StateFile
from tsched.backends.process import Identity
from tsched.backends.process.claim import claim
from tsched.backends.process.identity import lives
from tsched.backends.process.tree import living_tree
from tsched.errors import Invalid, ProcessGone
from tsched.rpc.processes import Process, this_host

MOST_PROCESSES = 4096


class Roll:
    """The known processes by group and job."""

    def __init__(self, state: StateFile) -> None:
        self._state = state

    @property
    def jobs(self) -> list[Key]:
        """Every group and job that has or had processes here."""
        return list(self._state.known)

    def knows(self, key: Key) -> bool:
        return key in self._state.known

    def known(self, key: Key) -> list[Identity]:
        """Every process that was known since the job's last end, whether it lives or not."""
        return list(self._state.known.get(key, ()))

    def living(self, key: Key) -> list[Identity]:
        return [process for process in self.known(key) if lives(process)]

    def add(self, key: Key, processes: Iterable[Identity]) -> bool:
        """These are of the job as well; those that have ended are forgotten. Whether anything is new."""
        known = self.known(key)
        new = [process for process in processes if process not in known]
        if not new:
            return False
        self._state.known[key] = [*filter(lives, known), *new][-MOST_PROCESSES:]
        self._state.write()
        return True

    def forget(self, key: Key) -> None:
        """The job has no state here any more."""
        if self._state.known.pop(key, None) is not None:
            self._state.write()

    def remove(self, key: Key, process: Process) -> None:
        """The process and its descendants are of the job no more; they are left as they are."""
        named = Identity(process.pid, process.started)
        leaving = {named, *living_tree([named])}
        left = [each for each in self.known(key) if each not in leaving]
        if left:
            self._state.known[key] = left
            self._state.write()
        else:
            self.forget(key)

    def check(self, key: Key, process: Process) -> Identity:
        """Which process this is, if it may be of this job.

        Raises:
            Invalid: it is another host's, another job's, or must not be stopped.
            ProcessGone: there is no such process.
        """
        if process.host and process.host != this_host():
            raise Invalid(f"process {process.pid} is not of this host and process namespace: register it with its own")
        (found,) = claim([process.pid], self._taken(key))
        if process.started and process.started != found.started:
            raise ProcessGone(
                f"process {process.pid} has exited, and another one has its number: register a living one"
            )
        _check_environment(key, named_by(process.pid), process.pid)
        return found

    def _taken(self, key: Key) -> dict[Identity, str]:
        return {
            process: other[1] for other in self.jobs if other[1] != key[1] for process in living_tree(self.known(other))
        }


def _check_environment(key: Key, said: Mapping[str, str], pid: int) -> None:
    group, job = key
    if said.get(JOB, "") not in (job, "") or said.get(GROUP, "") not in (group, ""):
        raise Invalid(f"process {pid} says by its environment that it is of job {said.get(JOB)!r}: {JOB}, {GROUP}")
