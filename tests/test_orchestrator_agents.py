"""The backend in front of agents keeps the contract of every backend, whatever becomes of the agents."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import grpc
import pytest

from tests.agent_site import LLMD, OWN, PATIENCE_S, Rig, agent, behind, client, until
from tests.rpc_site import Recorder
from tsched import Group, Job, Scheduler
from tsched.agent.config import Config
from tsched.agent.server import serve
from tsched.backends import Backend, Order
from tsched.backends.fake import FakeBackend
from tsched.backends.moves import carry_out
from tsched.costs import FixedTable
from tsched.errors import BackendError, StaleToken
from tsched.events import MoveFailed, Parked
from tsched.llmd import agent_pb2 as llmd
from tsched.model import SECOND_US
from tsched.orchestrator import foreign, remote_agent
from tsched.orchestrator.agents import AgentBackend, AgentWatch
from tsched.rpc.v1 import agent_pb2 as own
from tsched.rpc.v1 import worker_pb2 as pb
from tsched.testing import backend_suite
from tsched.testing.backend_suite import check_backend

pytestmark = pytest.mark.anyio

SIZE = 4096


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def order(op: int, job: str = "a", token: int = 1, node: str = "0") -> Order:
    return Order(op, "g", node, job, token, SIZE)


def device() -> FakeBackend:
    return FakeBackend(capacity_bytes={"g": 3 * SIZE}, host_bytes=2 * SIZE, costs=FixedTable(default_us=3_000))


# -------------------------------------------------------------------------------- stand-ins for agents

Handler = Callable[[bytes], Any]


@asynccontextmanager
async def stand_in(address: str, handlers: dict[str, Handler]) -> AsyncIterator[None]:
    """A server with these methods and no others; a handler answers with bytes, or with a status by raising it."""
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_send_message_length", -1)])
    services: dict[str, dict[str, Any]] = {}
    for path, handler in handlers.items():
        _, service, method = path.split("/")
        services.setdefault(service, {})[method] = grpc.unary_unary_rpc_method_handler(_answering(handler))
    for service, methods in services.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    server.add_insecure_port(address)
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)


def _answering(handler: Handler) -> Callable[[bytes, Any], Any]:
    async def answer(request: bytes, context: Any) -> bytes:
        said = handler(request)
        if isinstance(said, grpc.StatusCode):
            await context.abort(said, "by a test")
        if said is None:
            await anyio.sleep_forever()
        return bytes(said)

    return answer


def described(_: bytes) -> bytes:
    return own.Description(version=1, node="0").SerializeToString()


# -------------------------------------------------------------------------------- the contract


async def test_the_contract_holds_through_an_agent(tmp_path: Path) -> None:
    rigs = 0
    async with AsyncExitStack() as stack:

        async def make() -> Rig:
            nonlocal rigs
            rigs += 1
            fake = device()
            running = await stack.enter_async_context(agent(tmp_path, fake, name=str(rigs), state=""))
            return Rig(await stack.enter_async_context(behind(running.address)), fake)

        await check_backend(make, capacity_bytes=3 * SIZE, host_bytes=2 * SIZE, grace_us=3_000_000)
    assert rigs > 5


# What llm-d's protocol has no words for: discards (and so full devices that are emptied by one), kinds of failures
# (a full host), whether a process lives (the truth about a dead job), and jobs that were never moved (left alone).
# Tokens are compared on the orchestrator's side alone, so that "fenced" holds among the orders of one orchestrator.
BEYOND_LLMD = {"check_discard", "check_full_device", "check_full_host", "check_truth", "check_alone"}


@asynccontextmanager
async def llmd_only(folder: Path, backend: Backend, name: str, **settings: Any) -> AsyncIterator[str]:
    """Our own agent, of which nothing but llm-d's service is passed on."""
    async with (
        agent(folder, backend, name=f"{name}-whole", **settings) as running,
        client(running.address) as behind_it,
    ):

        def pass_on(method: str) -> Callable[[bytes, Any], Any]:
            call: Any = behind_it.channel.unary_unary(LLMD + method, None, None)

            async def answer(request: bytes, context: Any) -> bytes:
                try:
                    return bytes(await call(request))
                except grpc.aio.AioRpcError as error:
                    await context.abort(error.code(), error.details())
                    raise

            return answer

        server = grpc.aio.server()
        names = ("Snapshot", "Restore", "GetOperation", "Status")
        methods = {name: grpc.unary_unary_rpc_method_handler(pass_on(name)) for name in names}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(LLMD.strip("/"), methods),))
        address = f"unix:{folder}/{name}.sock"
        server.add_insecure_port(address)
        await server.start()
        try:
            yield address
        finally:
            await server.stop(0)


@pytest.mark.parametrize("check", [each for _, each in backend_suite.CHECKS if each.__name__ not in BEYOND_LLMD])
async def test_the_contract_holds_through_the_protocol_of_llmd_as_far_as_it_can(
    check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend_suite, "CHECKS", ((check.__name__, check),))
    fake = device()
    async with llmd_only(tmp_path, fake, "a") as address, behind(address) as backend:
        await check_backend(lambda: Rig(backend, fake), grace_us=6_000_000)
        assert backend.agents[address].foreign


async def test_a_discard_over_the_protocol_of_llmd_says_what_it_cannot_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "END_S", 0.1)
    fake = device()
    async with llmd_only(tmp_path, fake, "a") as address, behind(address) as backend:
        fake.allocate("g", "0", "a", SIZE)
        await backend.park(order(1))
        with pytest.raises(BackendError, match="cannot end a process"):
            await backend.discard(order(2))
        await backend.discard(order(3, "never-seen"))


# -------------------------------------------------------------------------------- agents that fail


async def test_an_order_waits_for_an_agent_that_is_not_there_yet(tmp_path: Path) -> None:
    fake = device()
    fake.allocate("g", "0", "a", SIZE)
    async with behind(f"unix:{tmp_path}/agent.sock") as backend, anyio.create_task_group() as tasks:
        tasks.start_soon(backend.park, order(1))
        await anyio.sleep(0.05)
        async with agent(tmp_path, fake):
            await until(lambda: _is_parked(fake), "the order arrives")


async def _is_parked(fake: FakeBackend) -> bool:
    return (await fake.probe("g", "0", "a", deadline_us=0)).parked_bytes > 0


async def test_an_order_whose_agent_is_away_ends_with_its_time(tmp_path: Path) -> None:
    async with behind(f"unix:{tmp_path}/none.sock") as backend:
        answer = await carry_out(backend, "park", order(1), 200_000)
    assert isinstance(answer, MoveFailed)


async def test_a_probe_of_an_agent_that_is_away_fails_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_agent, "ANSWER_S", 0.2)
    async with behind(f"unix:{tmp_path}/none.sock") as backend:
        with anyio.fail_after(5), pytest.raises(BackendError, match=r"none\.sock did not answer within"):
            await backend.probe("g", "0", "a", deadline_us=1)


async def test_an_order_is_asked_again_of_an_agent_that_was_started_anew_in_its_midst(tmp_path: Path) -> None:
    recorder = Recorder(hangs="park", once=True)
    recorder.allocate("g", "0", "a", SIZE)
    async with behind(f"unix:{tmp_path}/agent.sock") as backend, anyio.create_task_group() as tasks:
        async with agent(tmp_path, recorder):
            tasks.start_soon(backend.park, order(7))
            await until(lambda: bool(recorder.orders), "the order arrives")
        async with agent(tmp_path, recorder):
            await until(lambda: _is_parked(recorder), "the order is asked again")
    assert recorder.orders == [["park", 7, 1], ["park", 7, 1]]


async def test_an_order_that_takes_longer_than_a_call_is_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_agent, "CARRY_S", 0.05)
    fake = FakeBackend(costs=FixedTable(default_us=400_000))
    fake.allocate("g", "0", "a", SIZE)
    async with agent(tmp_path, fake) as running, behind(running.address) as backend:
        answer = await carry_out(backend, "park", order(1), 20 * SECOND_US)
        assert answer == Parked(1, "0")


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff no protobuf",
        pb.Answer(presence=pb.Presence(alive=True)).SerializeToString(),
        pb.Answer().SerializeToString(),
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.PERMISSION_DENIED,
        b"\x0a" + b"\x80" * 9 + b"\x01",
        pb.Answer(failure=pb.Failure(code="backend", text="x" * (2 << 20))).SerializeToString(),
    ],
    ids=["garbage", "another answer", "nothing", "internal", "denied", "overlong", "oversized"],
)
async def test_an_agent_that_answers_nonsense_fails_the_order(tmp_path: Path, said: Any) -> None:
    address = f"unix:{tmp_path}/a.sock"
    async with stand_in(address, {OWN + "Describe": described, OWN + "Carry": lambda _: said}), behind(address) as one:
        with anyio.fail_after(PATIENCE_S), pytest.raises(BackendError):
            await one.park(order(1))


async def test_sizes_below_nothing_are_nonsense_too(tmp_path: Path) -> None:
    said = pb.Answer(presence=pb.Presence(resident_bytes=-1, alive=True)).SerializeToString()
    address = f"unix:{tmp_path}/a.sock"
    async with stand_in(address, {OWN + "Describe": described, OWN + "Carry": lambda _: said}), behind(address) as one:
        with pytest.raises(BackendError, match="less than no bytes"):
            await one.probe("g", "0", "a", deadline_us=0)


async def test_an_agent_that_never_answers_fails_a_probe_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_agent, "ANSWER_S", 0.2)
    address = f"unix:{tmp_path}/a.sock"
    async with stand_in(address, {OWN + "Describe": described, OWN + "Carry": lambda _: None}), behind(address) as one:
        with anyio.fail_after(5), pytest.raises(BackendError, match="did not answer within"):
            await one.probe("g", "0", "a", deadline_us=1)
        assert isinstance(await carry_out(one, "park", order(1), 200_000), MoveFailed)


async def test_a_server_of_another_kind_is_nonsense(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/a.sock"
    async with stand_in(address, {"/other.Service/Method": lambda _: b""}), behind(address) as one:
        with pytest.raises(BackendError, match="does not offer"):
            await one.park(order(1))


async def test_an_agent_may_be_replaced_by_one_of_another_protocol(tmp_path: Path) -> None:
    fake = device()
    fake.allocate("g", "0", "a", SIZE)
    address = f"unix:{tmp_path}/a.sock"
    async with behind(address) as backend:
        async with agent(tmp_path, fake, name="a"):
            await backend.park(order(1))
        async with llmd_only(tmp_path, fake, "a", state=f"{tmp_path}/a.json"):
            await backend.restore(order(2))
            assert backend.agents[address].foreign


async def test_of_two_orchestrators_the_one_with_the_stale_token_is_refused(tmp_path: Path) -> None:
    fake = device()
    fake.allocate("g", "0", "a", SIZE)
    async with agent(tmp_path, fake) as running, behind(running.address) as old, behind(running.address) as new:
        await old.park(order(1, token=5))
        await new.restore(order(1, token=6))
        with pytest.raises(StaleToken):
            await old.park(order(2, token=5))
        assert (await new.probe("g", "0", "a", deadline_us=0)).resident_bytes == SIZE


async def test_nodes_are_moved_at_the_same_time(tmp_path: Path) -> None:
    slow = [FakeBackend(costs=FixedTable(default_us=400_000)) for _ in range(4)]
    nodes = tuple(str(number) for number in range(4))
    async with AsyncExitStack() as stack:
        running = [
            await stack.enter_async_context(agent(tmp_path, fake, name=node))
            for fake, node in zip(slow, nodes, strict=True)
        ]
        backend = await stack.enter_async_context(behind(*(each.address for each in running)))
        group = Group("g", capacity_bytes=SIZE, nodes=nodes)
        scheduler = await stack.enter_async_context(Scheduler([group], backend=backend, drain_s=0.1))
        for job in ("a", "b"):
            await scheduler.add_job(Job(job, state_bytes={"g": SIZE}))
        async with scheduler.hold("a", "g"):
            pass
        began = anyio.current_time()
        async with scheduler.hold("b", "g"):
            assert anyio.current_time() - began < 1.4  # one after another: 1.6 s


# -------------------------------------------------------------------------------- llm-d's agents that fail


class LlmdAgent:
    """An agent of llm-d's, as far as one job goes: it may forget its operations."""

    def __init__(self) -> None:
        self.state = llmd.JOB_STATE_RUNNING
        self.began: list[str] = []
        self.forgets = 0
        self.polls = 0

    def handlers(self) -> dict[str, Handler]:
        return {
            LLMD + "Snapshot": lambda _: self._begin("snapshot"),
            LLMD + "Restore": lambda _: self._begin("restore"),
            LLMD + "GetOperation": self._operation,
            LLMD + "Status": lambda _: self._status(),
        }

    def _begin(self, kind: str) -> bytes:
        self.began.append(kind)
        return llmd.SnapshotResponse(operation_id=str(len(self.began))).SerializeToString()

    def _operation(self, request: bytes) -> Any:
        self.polls += 1
        if self.forgets:
            self.forgets -= 1
            return grpc.StatusCode.NOT_FOUND
        if self.polls < 5:
            return llmd.GetOperationResponse(status=llmd.OPERATION_STATUS_PENDING).SerializeToString()
        self.state = llmd.JOB_STATE_SAVED if self.began[-1] == "snapshot" else llmd.JOB_STATE_RUNNING
        return llmd.GetOperationResponse(
            status=llmd.OPERATION_STATUS_COMPLETE, storage_bytes=77, snapshot_device_bytes=99
        ).SerializeToString()

    def _status(self) -> bytes:
        return llmd.StatusResponse(job_statuses=[llmd.JobStatus(job_id="a", state=self.state)]).SerializeToString()


async def test_an_agent_of_llmds_is_polled_until_the_end_and_its_figures_are_kept(tmp_path: Path) -> None:
    other, address = LlmdAgent(), f"unix:{tmp_path}/a.sock"
    async with stand_in(address, other.handlers()), behind(address) as backend:
        await backend.park(order(1))
        assert (await backend.probe("g", "0", "a", deadline_us=0)).parked_bytes == 77
        await backend.park(order(2))
        await backend.restore(order(3))
        assert (await backend.probe("g", "0", "a", deadline_us=0)).resident_bytes == 99
    assert other.began == ["snapshot", "restore"]


async def test_a_snapshot_is_begun_again_only_where_the_agent_does_not_know_the_operation(tmp_path: Path) -> None:
    other, address = LlmdAgent(), f"unix:{tmp_path}/a.sock"
    other.forgets = 1
    async with stand_in(address, other.handlers()), behind(address) as backend:
        await backend.park(order(1))
    assert other.began == ["snapshot", "snapshot"]


async def test_a_snapshot_that_was_done_before_the_agent_forgot_it_is_not_begun_again(tmp_path: Path) -> None:
    other, address = LlmdAgent(), f"unix:{tmp_path}/a.sock"
    other.forgets = 1

    def operation(_: bytes) -> Any:
        other.state = llmd.JOB_STATE_SAVED
        return grpc.StatusCode.NOT_FOUND

    async with stand_in(address, other.handlers() | {LLMD + "GetOperation": operation}), behind(address) as backend:
        await backend.park(order(1))
    assert other.began == ["snapshot"]


async def test_an_agent_that_forgets_every_operation_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, address = LlmdAgent(), f"unix:{tmp_path}/a.sock"
    other.forgets = 1_000
    async with stand_in(address, other.handlers()), behind(address) as backend:
        with pytest.raises(BackendError, match="does not keep operations"):
            await backend.park(order(1))
    assert len(other.began) == foreign.ATTEMPTS


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("Snapshot", b""),
        ("Snapshot", b"\xff\xff"),
        ("GetOperation", llmd.GetOperationResponse(status=llmd.OPERATION_STATUS_UNSPECIFIED).SerializeToString()),
        ("GetOperation", llmd.GetOperationResponse(status=llmd.OPERATION_STATUS_FAILED).SerializeToString()),
        ("Status", grpc.StatusCode.INTERNAL),
    ],
)
async def test_nonsense_of_an_agent_of_llmds_fails_the_order(tmp_path: Path, method: str, said: Any) -> None:
    other, address = LlmdAgent(), f"unix:{tmp_path}/a.sock"
    async with stand_in(address, other.handlers() | {LLMD + method: lambda _: said}), behind(address) as backend:
        with anyio.fail_after(PATIENCE_S), pytest.raises(BackendError):
            await backend.park(order(1))


# -------------------------------------------------------------------------------- the watch


@asynccontextmanager
async def watched(backend: AgentBackend, *nodes: str) -> AsyncIterator[tuple[Scheduler, AgentWatch]]:
    group = Group("g", capacity_bytes=SIZE, nodes=nodes or ("0",))
    async with (
        Scheduler([group], backend=backend, drain_s=0.1) as scheduler,
        AgentWatch(scheduler, backend, beat_s=0.02, grace_s=0.2) as watch,
    ):
        yield scheduler, watch


def lost(scheduler: Scheduler) -> dict[str, str]:
    return dict(scheduler.status().groups["g"].lost)


async def test_a_node_whose_agent_goes_away_is_lost_until_it_is_back(tmp_path: Path) -> None:
    async with behind(f"unix:{tmp_path}/agent.sock") as backend, watched(backend) as (scheduler, watch):
        async with agent(tmp_path, device()):
            await until(lambda: not watch.away, "the agent answers")
            assert not lost(scheduler)
        await until(lambda: "0" in lost(scheduler), "the node is lost")
        assert "cannot be reached" in lost(scheduler)["0"]
        assert watch.away
        async with agent(tmp_path, device()):
            await until(lambda: not lost(scheduler), "the node returns")


async def test_a_node_that_an_operator_drained_is_left_alone(tmp_path: Path) -> None:
    drained = {"0": "drained by an operator"}
    async with behind(f"unix:{tmp_path}/agent.sock") as backend, watched(backend) as (scheduler, watch):
        async with agent(tmp_path, device()):
            await until(lambda: not watch.away, "the agent answers")
            await scheduler.node_lost("g", "0", drained["0"])
            await anyio.sleep(0.1)
            assert lost(scheduler) == drained
        await until(lambda: bool(watch.away), "the agent is away")
        await anyio.sleep(0.3)
        assert lost(scheduler) == drained
        await scheduler.node_returned("g", "0")
        await until(lambda: "cannot be reached" in lost(scheduler).get("0", ""), "the agent is still away")
        await scheduler.node_lost("g", "0", drained["0"])
        async with agent(tmp_path, device()):
            await until(lambda: not watch.away, "the agent answers")
            await anyio.sleep(0.1)
            assert lost(scheduler) == drained


async def test_an_agent_of_llmds_is_watched_as_well(tmp_path: Path) -> None:
    async with (
        behind(f"unix:{tmp_path}/a.sock") as backend,
        watched(backend) as (scheduler, watch),
    ):
        async with llmd_only(tmp_path, device(), "a"):
            await until(lambda: not watch.away, "the agent answers")
        await until(lambda: "0" in lost(scheduler), "the node is lost")


async def test_an_agent_that_hangs_loses_its_node_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tsched.orchestrator.agent_watch.ANSWER_S", 0.1)
    hung = f"unix:{tmp_path}/hung.sock"
    async with (
        stand_in(hung, {OWN + "Describe": lambda _: None}),
        agent(tmp_path, device()) as running,
        behind(hung, running.address) as backend,
        watched(backend, "0", "1") as (scheduler, _),
    ):
        await until(lambda: set(lost(scheduler)) == {"0"}, "the node is lost")


async def test_serving_needs_no_more_than_a_config(tmp_path: Path) -> None:
    async with (
        serve(Config(listen="127.0.0.1:0", backend="fake", state="")) as running,
        behind(running.address) as backend,
    ):
        await backend.park(order(1))
        assert (await backend.probe("g", "0", "a", deadline_us=0)).parked_bytes == SIZE
