"""Tell the kernel a plan's steps and read every one back. The only module that imports pyroute2.

There is no undo list: the namespaces live on descriptors, so closing those undoes every step at once, in whatever
state it was. A setting that did not take is a LabError that names it.
"""

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar

from pyroute2 import IPRoute
from pyroute2.netlink.exceptions import NetlinkError

from netlab.errors import LabError
from netlab.lab import offloads, relay_process, syscalls
from netlab.lab.plan import (
    CLIENT_ADDRESS,
    INTERFACE,
    PREFIX,
    SERVER_ADDRESS,
    SUBNET,
    Neighbour,
    Netem,
    Offloads,
    Place,
    Route,
    Step,
    Sysctl,
    Up,
    Veth,
    steps,
)
from netlab.lab.wiring import BuildRequest
from netlab.scenario import Backend
from netlab.units import NS_PER_US, format_duration

_Result = TypeVar("_Result")
# netem counts packets that it holds back too; a tick is 64 ns (Linux net/sched/sch_netem.c, PSCHED_SHIFT 6).
_TICK_NS = 64
_NO_NETEM_HINT = "this kernel has no sch_netem; use --emulation relay, or install the kernel's extra modules"
_RECORDED = (
    "net/ipv4/tcp_slow_start_after_idle",
    "net/ipv4/tcp_no_metrics_save",
    "net/ipv4/tcp_autocorking",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_sack",
    "net/ipv4/tcp_timestamps",
    "net/ipv4/tcp_window_scaling",
    "net/ipv4/tcp_early_retrans",
    "net/ipv4/tcp_recovery",
    "net/ipv4/tcp_min_tso_segs",
)


class _Namespace:
    """A worker thread inside one namespace with its own netlink socket (pyroute2's are per thread)."""

    def __init__(self, place: Place, descriptor: int, stack: ExitStack) -> None:
        self.place = place
        self._executor = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        self.do(lambda: syscalls.setns(descriptor, syscalls.CLONE_NEWNET))
        self.ip: Any = self.do(lambda: IPRoute(ext_ack=True, strict_check=True))
        stack.callback(lambda: self.do(self.ip.close))

    def do(self, function: Callable[[], _Result]) -> _Result:
        return self._executor.submit(function).result()

    def index(self, interface: str) -> int:
        found: list[int] = self.ip.link_lookup(ifname=interface)
        if not found:
            raise LabError(f"find interface {interface} in {self.place}", hint="the lab lost it while being built")
        return found[0]


def build(
    wanted: BuildRequest, descriptors: Mapping[str, int], relay: relay_process.Starting | None
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Make the lab that is `wanted` in the namespaces; return what was read back, and shared descriptors.

    `relay` is there unless netem was asked for. Raises LabError naming the step.
    """
    with ExitStack() as stack:
        spaces = {place: _Namespace(place, descriptors[place], stack) for place in Place}
        backend = wanted.link.backend
        if backend is not Backend.RELAY:
            reason = spaces[Place.MIDDLE].do(lambda: _netem_missing(spaces[Place.MIDDLE]))
            if reason is not None and backend is Backend.NETEM:
                raise LabError(f"add netem: {reason}", hint=_NO_NETEM_HINT)
            backend = Backend.NETEM if reason is None else Backend.RELAY
        for step in steps(wanted.link, wanted.server_tcp, wanted.client_tcp, backend):
            _apply(step, spaces, descriptors)
        ends = (spaces[Place.CLIENT], spaces[Place.SERVER])
        read = {space.place.value: space.do(partial(_read_back, space)) for space in ends}
    emulation: dict[str, Any] = {"backend": backend.value}
    shared: tuple[int, ...] = ()
    if relay is not None and backend is Backend.RELAY:
        emulation, shared = relay.go()
    elif relay is not None:
        relay.abandon()
    return {"backend": backend.value, "ends": read, "emulation": emulation}, shared


def _apply(step: Step, spaces: Mapping[Place, _Namespace], descriptors: Mapping[str, int]) -> None:
    space = spaces[step.place]
    what = f"{type(step).__name__.lower()} at {step.place}"
    try:
        space.do(lambda: _do(step, space, descriptors))
    except NetlinkError as error:
        raise LabError(f"{what}: {error.args[1] if len(error.args) > 1 else error}", hint=f"step: {step}") from error
    except OSError as error:
        raise LabError(f"{what}: {error.strerror or error}", hint=f"step: {step}") from error


def _do(step: Step, space: _Namespace, descriptors: Mapping[str, int]) -> None:
    match step:
        case Veth():
            peer = {
                "ifname": step.peer_interface,
                "net_ns_fd": descriptors[step.peer_place],
                "address": step.peer_mac,
                "mtu": step.mtu,
            }
            space.ip.link("add", ifname=step.interface, kind="veth", address=step.mac, mtu=step.mtu, peer=peer)
        case Up():
            index = space.index(step.interface)
            if step.address is not None:
                space.ip.addr("add", index=index, address=step.address, prefixlen=PREFIX)
            space.ip.link("set", index=index, state="up")
        case Sysctl():
            _write_sysctl(step)
        case Offloads():
            offloads.set_and_check(step.interface, step.on)
        case Neighbour():
            permanent = 0x80  # NUD_PERMANENT
            space.ip.neigh(
                "add", ifindex=space.index(step.interface), dst=step.address, lladdr=step.mac, state=permanent
            )
        case Route():
            _set_route(step, space)
        case Netem():
            _set_netem(step, space)


def _write_sysctl(step: Sysctl) -> None:
    path = "/proc/sys/" + step.name
    try:
        # Unbuffered: a buffered file object has swallowed an EPERM.
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        if "/ipv6/" in step.name:
            return  # a kernel without IPv6 has nothing to switch off
        raise
    try:
        os.write(descriptor, step.value.encode())
    finally:
        os.close(descriptor)
    got = _read_sysctl(step.name)
    if got != step.value:
        raise LabError(f"sysctl {step.name} at {step.place}: wanted {step.value}, got {got}")


def _read_sysctl(name: str) -> str | None:
    try:
        descriptor = os.open("/proc/sys/" + name, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return " ".join(os.read(descriptor, 4096).decode().split())
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _set_route(step: Route, space: _Namespace) -> None:
    metrics: dict[str, Any] = {"cc_algo": step.congestion}
    if step.initcwnd is not None:
        metrics["initcwnd"] = step.initcwnd
    # Leaving out proto (kernel), scope (link) or prefsrc would make it another route.
    space.ip.route(
        "change", dst=SUBNET, oif=space.index(step.interface), prefsrc=step.address, proto=2, scope=253, metrics=metrics
    )
    got = _read_route(space)
    wanted = {"cc_algo": step.congestion} | ({} if step.initcwnd is None else {"initcwnd": str(step.initcwnd)})
    for name, value in wanted.items():
        if got.get(name) != value:
            raise LabError(
                f"route metric {name} at {step.place}: wanted {value}, got {got.get(name)}",
                hint="the kernel may lack that congestion control (net.ipv4.tcp_available_congestion_control)",
            )


def _read_route(space: _Namespace) -> dict[str, str]:
    for route in space.ip.get_routes(family=2, table=254):
        if route.get_attr("RTA_DST") == SUBNET.partition("/")[0]:
            metrics = route.get_attr("RTA_METRICS")
            named = {} if metrics is None else dict(metrics["attrs"])
            return {name.removeprefix("RTAX_").lower(): str(value).rstrip("\0") for name, value in named.items()}
    raise LabError(f"read the route at {space.place}: it is gone")


def _netem_missing(space: _Namespace) -> str | None:
    """Try netem on the middle's loopback; return why it cannot be had, or None."""
    try:
        space.ip.tc("add", "netem", space.index("lo"), delay=1000, limit=10)
    except NetlinkError as error:
        return str(error.args[1] if len(error.args) > 1 else error)
    space.ip.tc("del", "netem", space.index("lo"))
    return None


def _set_netem(step: Netem, space: _Namespace) -> None:
    wanted, index = step.emulation, space.index(step.interface)
    space.ip.tc(
        "add",
        "netem",
        index,
        handle=0x10000,
        delay=wanted.delay // NS_PER_US,
        jitter=wanted.jitter // NS_PER_US,
        loss=wanted.loss * 100,
        limit=wanted.limit,
    )
    if wanted.rate is not None:
        # netem's own rate is broken in pyroute2 0.9.7; a token bucket below it shapes as well.
        space.ip.tc(
            "add",
            "tbf",
            index,
            handle=0x20000,
            parent=0x10001,
            rate=wanted.rate // 8,
            burst=max(2 * 1514, wanted.rate // 8 // 250),
            limit=wanted.limit * 1514,
        )
    options = _read_netem(space, index)
    got = options["delay"] * _TICK_NS
    if abs(got - wanted.delay) > 2 * NS_PER_US or options["limit"] != wanted.limit:
        raise LabError(
            f"netem at {step.place}: wanted {format_duration(wanted.delay)}, limit {wanted.limit}; "
            f"got {format_duration(got)}, limit {options['limit']}"
        )


def _read_netem(space: _Namespace, index: int) -> dict[str, int]:
    for qdisc in space.ip.get_qdiscs(index=index):
        if qdisc.get_attr("TCA_KIND") == "netem":
            options = qdisc.get_attr("TCA_OPTIONS")
            return {name: int(options[name]) for name in ("delay", "limit", "loss", "jitter")}
    raise LabError(f"read netem at {space.place}: it is gone")


def _read_back(space: _Namespace) -> dict[str, Any]:
    index = space.index(INTERFACE)
    link = space.ip.get_links(index)[0]
    qdiscs = [q.get_attr("TCA_KIND") for q in space.ip.get_qdiscs(index=index)]
    qdisc = "+".join(qdiscs) or "none"
    if "netem" in qdiscs:
        qdisc += " " + str(_read_netem(space, index))
    values = {name: _read_sysctl(name) for name in _RECORDED}
    return {
        "name": str(space.place),
        "address": CLIENT_ADDRESS if space.place is Place.CLIENT else SERVER_ADDRESS,
        "interface": INTERFACE,
        "mtu": link.get_attr("IFLA_MTU"),
        "route": _read_route(space),
        "sysctls": {name.replace("/", "."): value for name, value in values.items() if value is not None},
        "offloads": offloads.read(INTERFACE),
        "qdisc": qdisc,
    }
