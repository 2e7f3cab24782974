"""Parked regions come back bit for bit, on the same storages, or stay where they were."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.test_backends_region_training import Training, network
from tsched.backends import Sizes
from tsched.backends.arena import Arena
from tsched.backends.region import CpuCopier, HostPool, Regions, RegionStore, copier_for, touch
from tsched.errors import BackendError, DeviceMemoryFull, HostMemoryFull, Invalid, UnknownRegion


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def store_of(source: object, **options: object) -> RegionStore:
    return RegionStore(Regions().add("x", source), checksums=True, **options)  # type: ignore[arg-type]


def there_and_back(store: RegionStore) -> None:
    store.park()
    assert store.resident_bytes == 0
    store.restore()
    assert store.parked_bytes == 0


def test_parked_memory_is_free_and_a_touch_of_it_is_refused() -> None:
    model = network()
    before = model(torch.ones(2, 8)).clone()
    store = store_of(model)
    store.park()
    assert touch.enforced()
    assert all(parameter.untyped_storage().nbytes() == 0 for parameter in model.parameters())
    weight = model[0].weight  # type: ignore[index]
    touches: list[Callable[[], object]] = [
        lambda: weight + 1,
        lambda: weight.sum(),
        lambda: weight.detach().zero_(),
        lambda: weight.detach().numpy(),
        lambda: weight.clone(),
        lambda: weight[0].item(),
        lambda: str(weight),
        lambda: model(torch.ones(2, 8)),
    ]
    for use in touches:
        with pytest.raises(RuntimeError):
            use()
    store.restore()
    model.eval()
    model.train()
    assert torch.equal(model(torch.ones(2, 8)), before)


def test_identities_views_ties_hooks_and_flags_survive() -> None:
    model = network()
    first = model[0]  # type: ignore[index]
    assert isinstance(first, torch.nn.Linear)
    frozen = first.bias.requires_grad_(False)
    view, tied = first.weight.detach()[2:5].t(), torch.nn.Linear(8, 16)
    tied.weight = first.weight
    optimizer = torch.optim.AdamW(first.parameters())
    calls: list[str] = []
    first.weight.register_hook(lambda grad: calls.append("grad"))  # type: ignore[no-untyped-call]
    first.weight.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
        lambda parameter: calls.append("accumulated")
    )
    parameters, storage = list(model.parameters()), first.weight.untyped_storage()._cdata
    there_and_back(store_of({"model": model, "tied": tied}))
    assert [a is b for a, b in zip(model.parameters(), parameters, strict=True)] == [True] * len(parameters)
    assert optimizer.param_groups[0]["params"][0] is first.weight is tied.weight
    assert first.weight.untyped_storage()._cdata == storage
    assert not frozen.requires_grad
    with torch.no_grad():
        first.weight[3, 1] = 42.0
    assert float(view[1, 1]) == 42.0
    model(torch.ones(2, 8)).sum().backward()
    assert calls == ["grad", "accumulated"]


def test_a_graph_that_was_built_before_a_park_can_be_walked_after_the_restore() -> None:
    weight, twin = (torch.nn.Parameter(torch.arange(9.0).reshape(3, 3)) for _ in range(2))
    loss = (weight @ weight).sin().sum()
    there_and_back(store_of(lambda: weight))
    loss.backward()  # type: ignore[no-untyped-call]
    (twin @ twin).sin().sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    assert twin.grad is not None
    assert torch.equal(weight.grad, twin.grad)


def test_tied_weights_are_moved_once() -> None:
    embedding, head = torch.nn.Embedding(10, 4), torch.nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    store = RegionStore(Regions().add("embedding", embedding).add("head", head))
    assert store.sizes == Sizes(160)
    store.park()
    assert store.parked_bytes == 160
    exported = store.export()
    assert exported["embedding.weight"].data_ptr() == exported["head.weight"].data_ptr()
    assert list(store.export(["head"])) == ["head.weight"]
    store.restore()
    assert head.weight is embedding.weight


def test_weights_loaded_from_safetensors_are_adopted_with_everything_that_aliases_them(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_file({"a": torch.arange(12.0).reshape(3, 4), "b": torch.ones(5, dtype=torch.bfloat16)}, tmp_path / "w")
    loaded = load_file(tmp_path / "w")
    parameter, view = torch.nn.Parameter(loaded["a"]), loaded["a"].t()[1:]
    assert not parameter.untyped_storage().resizable()
    store = store_of(lambda: [loaded, parameter, view])
    there_and_back(store)
    assert torch.equal(parameter, torch.arange(12.0).reshape(3, 4))
    assert torch.equal(view, torch.arange(12.0).reshape(3, 4).t()[1:])
    assert view.stride() == (1, 4)
    with torch.no_grad():
        parameter[0, 1] = -1
    assert float(view[0, 0]) == float(loaded["a"][0, 1]) == -1


def test_memory_that_an_unknown_tensor_or_array_uses_too_is_not_taken_from_it() -> None:
    source = torch.frombuffer(bytearray(range(16)), dtype=torch.uint8)
    hidden = source[4:]
    store = store_of(lambda: source)
    with pytest.raises(Invalid, match="'x' lies on memory that torch does not own, and 1 tensors that no region"):
        store.park()
    assert hidden.tolist() == list(range(4, 16))
    del hidden
    store.park()
    store.restore()
    array = source.numpy()
    with pytest.raises(Invalid, match="clone it"):
        store.park()
    del array
    there_and_back(store)
    assert source.tolist() == list(range(16))


def test_two_storages_over_one_memory_are_refused() -> None:
    memory = bytearray(16)
    one, two = (torch.frombuffer(memory, dtype=torch.uint8) for _ in range(2))
    with pytest.raises(Invalid, match="lie on the same memory through two storages"):
        store_of([one, two]).park()


def test_memory_that_processes_share_is_refused_and_may_be_named_as_shared() -> None:
    common = torch.ones(10).share_memory_()  # type: ignore[no-untyped-call]
    with pytest.raises(Invalid, match="in memory that processes share"):
        store_of(common).park()
    store = RegionStore(Regions().add("x", [common, torch.ones(5)]).share(common))
    store.park()
    assert store.parked_bytes == 20
    assert store.sizes == Sizes(20, 0, 40)
    assert float(common.sum()) == 10


class Wrapped(torch.Tensor):
    """Holds another tensor."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        wrapper: Wrapped = torch.Tensor._make_wrapper_subclass(cls, inner.shape)
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def,override]
        raise NotImplementedError


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (torch.eye(3).to_sparse(), "sparse_coo"),
        (torch.ones(3, device="meta"), "meta device"),
        (Wrapped(torch.ones(3)), "is a Wrapped"),
        (torch.nn.LazyLinear(3), "not initialized yet"),
        ("text", "str is no module"),
    ],
)
def test_what_has_no_plain_storage_is_refused(tensor: object, why: str) -> None:
    source = [torch.ones(2), tensor] if not isinstance(tensor, str) else lambda: 3
    with pytest.raises(Invalid, match=why if not isinstance(tensor, str) else "int is no module"):
        store_of(source)


def test_gradients_and_moments_that_appear_and_vanish_are_followed() -> None:
    job = Training(network(), torch.optim.AdamW)
    arena = Arena(1 << 20)
    store = RegionStore(job.regions(), arena=arena)
    bare = arena.used_bytes
    job.step()
    assert store.trim() == arena.used_bytes == store.resident_bytes > 3 * bare
    job.optimizer.zero_grad()
    assert store.trim() == arena.used_bytes < 4 * bare
    there_and_back(store)
    store.park()
    assert arena.used_bytes == 0


def test_a_gradient_that_was_dropped_while_parked_is_not_kept() -> None:
    weight = torch.nn.Parameter(torch.ones(100))
    weight.grad = torch.ones(100)
    arena = Arena(1 << 20)
    store = RegionStore(Regions().add("x", lambda: weight), arena=arena)
    store.park()
    weight.grad = None
    store.restore()
    assert (store.resident_bytes, arena.used_bytes) == (400, 400)


def test_some_regions_can_be_parked_and_an_unknown_one_is_named() -> None:
    model = network()
    store = RegionStore(Regions().add("model", model).add("cache", torch.ones(100)))
    store.park(["cache"])
    assert store.parked_bytes == 400
    assert model(torch.ones(2, 8)).shape == (2, 4)
    for call in (store.park, store.restore, store.export, store.refill):
        with pytest.raises(UnknownRegion, match=r"no region 'kv' is registered; there are: model, cache"):
            call(["kv"])
    store.park()
    store.restore(["model"])
    assert store.parked_bytes == 400
    store.restore()
    with pytest.raises(Invalid, match="'model' is taken"):
        store.regions.add("model", model)


def test_what_may_be_dropped_is_not_saved_and_comes_back_as_zeros_when_asked_for() -> None:
    cache, weight = torch.ones(100), torch.ones(10)
    arena = Arena(440)
    store = RegionStore(Regions().add("w", weight).add("cache", cache, drop=True), arena=arena)
    assert store.sizes == Sizes(40, 400)
    store.park()
    assert (store.parked_bytes, store.resident_bytes) == (40, 0)
    store.restore()
    assert (store.parked_bytes, store.resident_bytes, arena.used_bytes) == (0, 40, 40)
    assert store.sizes == Sizes(40, 400)
    with pytest.raises(RuntimeError):
        cache.sum()
    store.refill()
    assert (store.resident_bytes, arena.used_bytes) == (440, 440)
    assert float(cache.sum()) == 0.0
    assert store.trim() == 40
    assert (store.resident_bytes, float(weight.sum())) == (40, 10.0)
    assert list(store.export()) == ["w"]


def test_a_state_that_outgrew_the_arena_is_reported_and_left_alone() -> None:
    grown = [torch.ones(10)]
    store = RegionStore(Regions().add("x", lambda: list(grown)), arena=Arena(100))
    grown.append(torch.ones(20))
    with pytest.raises(DeviceMemoryFull, match="job: 80 bytes do not fit beside the 40 in use of 100"):
        store.trim()
    assert float(grown[1].sum()) == 20.0
    store.park()
    with pytest.raises(DeviceMemoryFull):
        store.restore()
    assert (store.parked_bytes, store.resident_bytes) == (120, 0)


def test_random_numbers_go_on_where_they_were() -> None:
    own, default = torch.Generator().manual_seed(1), torch.default_generator
    store = RegionStore(Regions().add("own", own).add("default", default))
    torch.manual_seed(5)
    expected = torch.rand(3, generator=own.clone_state()), torch.rand(3, generator=default.clone_state())
    store.park()
    torch.manual_seed(6)
    torch.rand(10, generator=own)
    assert torch.equal(store.export()["default"], torch.Generator().manual_seed(5).get_state())
    store.restore()
    assert torch.equal(torch.rand(3, generator=own), expected[0])
    assert torch.equal(torch.rand(3), expected[1])


def test_a_host_that_is_full_refuses_before_anything_moved() -> None:
    pool, state = HostPool(500), torch.ones(100)
    store = RegionStore(Regions().add("x", state), pool=pool)
    other = RegionStore(Regions().add("x", torch.ones(50)), pool=pool)
    other.park()
    with pytest.raises(HostMemoryFull, match="400 bytes would be parked beside 200, and host memory may hold 500"):
        store.park()
    assert (float(state.sum()), store.parked_bytes) == (100.0, 0)
    other.restore()
    there_and_back(store)


def test_a_device_without_a_copier_is_refused_by_name() -> None:
    with pytest.raises(BackendError, match="state on a 'xpu' device cannot be parked"):
        copier_for(torch.device("xpu"))


def test_a_store_that_ended_says_so() -> None:
    store = store_of(torch.ones(3))
    store.discard()
    store.discard()
    with pytest.raises(BackendError, match="its store was discarded; make a new one"):
        store.park()


def test_a_closed_store_leaves_what_is_resident_and_drops_what_is_parked() -> None:
    pool, one, two = HostPool(), torch.ones(3), torch.ones(3)
    store = RegionStore(Regions().add("one", one).add("two", two), pool=pool)
    store.park(["two"])
    store.close()
    assert (pool.used_bytes, float(one.sum()), two.untyped_storage().nbytes()) == (0, 3.0, 0)


def test_a_store_keeps_nothing_alive_that_its_job_let_go() -> None:
    grown = [torch.ones(10), torch.ones(10)]
    store = RegionStore(Regions().add("x", lambda: list(grown)))
    there_and_back(store)
    gone = weakref.ref(grown.pop())
    gc.collect()
    assert gone() is None
    assert store.resident_bytes == 40


def test_a_state_that_another_store_has_parked_is_refused_by_name() -> None:
    weight = torch.ones(5)
    store_of(weight).park()
    with pytest.raises(Invalid, match="the memory of tensor 'x' is not there"):
        store_of(weight)


def test_an_iterator_that_can_be_read_once_is_parked_every_time() -> None:
    layer = torch.nn.Linear(3, 3)
    store = RegionStore(Regions().add("now", layer.parameters()).add("later", lambda: iter([torch.ones(2)])))
    for _ in range(2):
        store.park(["now"])
        assert layer.weight.untyped_storage().nbytes() == 0
        store.restore()
    with pytest.raises(Invalid, match=r"region 'x\.a' holds an iterator, which is empty once it was read"):
        store_of({"a": layer.parameters()})


def test_two_states_of_one_name_are_refused_since_one_would_be_missing_from_the_checkpoint() -> None:
    regions = Regions().add("a", {"b": torch.ones(2)}).add("a.b", torch.ones(3))
    with pytest.raises(Invalid, match=r"two states are named 'a\.b'"):
        RegionStore(regions)


def test_what_one_region_would_drop_and_another_saves_is_saved() -> None:
    pool = torch.ones(100)
    store = RegionStore(Regions().add("cache", pool[:50], drop=True).add("state", pool))
    assert store.sizes == Sizes(400, 0)
    store.trim()
    there_and_back(store)
    assert float(pool.sum()) == 100.0


def test_conjugate_and_negative_views_are_exported_and_adopted_with_their_values() -> None:
    foreign = torch.frombuffer(bytearray(16), dtype=torch.complex64).fill_(1 + 2j)
    conjugate, negative = foreign.conj(), torch.full((2,), 1 + 2j).conj().imag
    assert negative.is_neg()
    expected = {"x.conjugate": conjugate.clone(), "x.negative": negative.clone(), "x.plain": foreign.clone()}
    store = store_of(lambda: {"conjugate": conjugate, "negative": negative, "plain": foreign})
    there_and_back(store)
    assert all(torch.equal(store.export()[name], tensor) for name, tensor in expected.items())
    assert torch.equal(conjugate, expected["x.conjugate"])
    assert torch.equal(negative, expected["x.negative"])


def test_a_discard_also_frees_memory_that_cannot_be_emptied() -> None:
    memory = bytearray(4000)
    foreign = torch.frombuffer(memory, dtype=torch.uint8)
    store = store_of(lambda: foreign)
    store.discard()
    memory.clear()  # refused while anything uses it
    assert foreign.numel() == 0


def test_a_turn_that_moves_nothing_neither_empties_caches_nor_feeds_the_collector() -> None:
    released: list[str] = []

    class Counting(CpuCopier):
        def release(self) -> None:
            released.append("release")

    job = Training(torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(100))), torch.optim.AdamW)
    job.loss = lambda: job.model(torch.ones(1, 4)).sum()  # type: ignore[method-assign]
    job.step()
    store = RegionStore(job.regions(), copier_for=lambda device: Counting())
    store.trim()
    gc.collect()
    gc.disable()
    try:
        before = gc.get_count()[0]
        store.refill()
        store.trim()
        assert gc.get_count()[0] - before < 500  # of a thousand tensors
    finally:
        gc.enable()
    assert not released
    store.park()
    assert released


def test_a_restore_that_fails_leaves_a_common_generator_to_who_uses_it() -> None:
    arena, generator = Arena(400), torch.Generator().manual_seed(1)
    store = RegionStore(Regions().add("x", torch.ones(100)).add("random", generator), arena=arena)
    store.park()
    arena.charge("other", 400)
    generator.manual_seed(2)
    with pytest.raises(DeviceMemoryFull):
        store.restore()
    assert torch.equal(generator.get_state(), torch.Generator().manual_seed(2).get_state())
