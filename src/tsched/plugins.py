"""Policies and backends by name: where they are found, and how one is made from a word on the command line.

A spec is a name or a dotted path, and perhaps options: `fifo`, `fifo?window=4&linger_s=2`, `pkg.mod:Class`. Options
are the constructor's keyword arguments, read as its annotations say. Names come from the entry points
`tsched.policies` and `tsched.backends`; the built-ins are registered there too, and are known without an
installation. Nothing is imported before it is named.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Union, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

from tsched.errors import Invalid, UnknownPlugin
from tsched.policies import Policy

POLICIES = "tsched.policies"
BACKENDS = "tsched.backends"

# The same as in pyproject.toml (a test compares them), for a checkout that nobody installed.
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    POLICIES: {
        "fifo": "tsched.policies.fifo:Fifo",
        "shortest_phase_first": "tsched.policies.shortest_phase_first:ShortestPhaseFirst",
        "fair_share": "tsched.policies.fair_share:FairShare",
        "least_recently_served": "tsched.policies.least_recently_served:LeastRecentlyServed",
        "round_robin": "tsched.policies.round_robin:RoundRobin",
        "longest_remaining_first": "tsched.policies.longest_remaining_first:LongestRemainingFirst",
    },
    BACKENDS: {
        "fake": "tsched.backends.fake:FakeBackend",
        "region": "tsched.backends.region:RegionBackend",
        "process": "tsched.backends.process:ProcessBackend",
        "app": "tsched.backends.app:AppBackend",
    },
}
_KIND = {POLICIES: "policy", BACKENDS: "backend"}
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_TYPE_NAMES = {int: "an integer", float: "a number", bool: "true or false", str: "text"}


def policy_names() -> list[str]:
    """Every installed policy: the built-ins, then the others by name."""
    return _names(POLICIES)


def backend_names() -> list[str]:
    """Every installed backend: the built-ins, then the others by name."""
    return _names(BACKENDS)


def load_policy(spec: str | Policy) -> Policy:
    """A new policy as `spec` says; one that is made already is returned as it is.

    Raises:
        UnknownPlugin: no policy of this name is installed, or it cannot be imported.
        Invalid: an option is unknown, or its value is not of the right kind or out of range.
    """
    if isinstance(spec, Policy):
        return spec
    made = _make(POLICIES, spec)
    if not isinstance(made, Policy):
        raise Invalid(f"policy {spec!r}: {type(made).__name__} is no policy; derive it from tsched.policies.Policy")
    if not made.name:
        made.name = _split(POLICIES, spec)[0]
    return made


def load_backend(spec: str) -> Any:
    """A new backend as `spec` says; raises as `load_policy` does."""
    return _make(BACKENDS, spec)


def policy_factory(spec: str) -> Callable[..., Any]:
    """The class that `spec` names, its options left aside."""
    return _factory(POLICIES, _split(POLICIES, spec)[0])


def backend_factory(spec: str) -> Callable[..., Any]:
    """The class that `spec` names, its options left aside."""
    return _factory(BACKENDS, _split(BACKENDS, spec)[0])


def options(factory: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The keyword options of a plug-in's constructor, in order, with their types resolved."""
    target: Any = inspect.getattr_static(factory, "__init__") if isinstance(factory, type) else factory
    try:
        parameters = inspect.signature(factory).parameters
        hints = get_type_hints(target)
    except (NameError, TypeError, ValueError):
        return {}
    return {
        name: parameter.replace(annotation=hints.get(name, str))
        for name, parameter in parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _names(group: str) -> list[str]:
    own = list(BUILT_IN[group])
    return own + sorted({point.name for point in entry_points(group=group)} - set(own))


def _make(group: str, spec: str) -> Any:
    name, given = _split(group, spec)
    factory = _factory(group, name)
    where = f"{_KIND[group]} {spec!r}"
    arguments = dict(_arguments(where, options(factory), given))
    try:
        return factory(**arguments)
    except TypeError as error:
        raise Invalid(f"{where}: cannot be made from options alone: {error}") from error


def _split(group: str, spec: str) -> tuple[str, list[tuple[str, str]]]:
    name, _, query = spec.partition("?")
    try:
        return name.strip(), parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise Invalid(f"{_KIND[group]} {spec!r}: options are written name?key=value&key=value") from None


def _factory(group: str, name: str) -> Callable[..., Any]:
    kind = _KIND[group]
    point = _find(group, name)
    if point is None:
        installed = ", ".join(_names(group))
        raise UnknownPlugin(f"no {kind} {name!r} is installed; there are: {installed}; or name one as pkg.mod:Class")
    try:
        found = point.load()
    except ImportError as error:
        raise UnknownPlugin(f"{kind} {name!r} cannot be imported: {error}{_remedy(point)}") from error
    except Exception as error:  # a plug-in's own code may raise anything
        raise UnknownPlugin(f"{kind} {name!r} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise Invalid(f"{kind} {name!r}: {point.value} is a {type(found).__name__}, not a class or a function")
    return found  # type: ignore[no-any-return]


def _find(group: str, name: str) -> EntryPoint | None:
    if name in BUILT_IN[group]:
        return EntryPoint(name, BUILT_IN[group][name], group)
    if ":" in name:
        module, _, attribute = name.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
            raise UnknownPlugin(f"{_KIND[group]} {name!r}: a dotted path is written pkg.mod:Class")
        return EntryPoint(name, name, group)
    found = list(entry_points(group=group, name=name))
    if len({point.value for point in found}) > 1:
        values = " and ".join(sorted(point.value for point in found))
        raise Invalid(f"{_KIND[group]} {name!r} is installed twice, as {values}; name one of them by its dotted path")
    return found[0] if found else None


def _remedy(point: EntryPoint) -> str:
    """What to install, where the entry point says that it needs an extra."""
    dist = getattr(point, "dist", None)
    return f"; pip install '{dist.name}[{','.join(point.extras)}]'" if dist is not None and point.extras else ""


def _arguments(
    where: str, known: Mapping[str, inspect.Parameter], given: list[tuple[str, str]]
) -> Iterator[tuple[str, Any]]:
    seen: set[str] = set()
    for key, text in given:
        if key not in known:
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise Invalid(f"{where}: unknown option {key!r}; {takes}")
        if key in seen:
            raise Invalid(f"{where}: option {key!r} is given twice")
        seen.add(key)
        yield key, _read(f"{where}: {key}", known[key].annotation, text)
    for key, parameter in known.items():
        if parameter.default is parameter.empty and key not in seen:
            raise Invalid(f"{where}: option {key!r} is required: write ?{key}=…")


def _read(where: str, kind: Any, text: str) -> Any:
    """`text` as the annotation `kind`; unions are tried from left to right."""
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        for each in kinds[:-1]:
            try:
                return _read(where, each, text)
            except Invalid:
                continue
        kind = kinds[-1]
    try:
        if kind is bool:
            return _WORDS[text.lower()]
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        raise Invalid(f"{where} must be {_TYPE_NAMES[kind]}, not {text!r}") from None
