"""What the kernel must be told to make a lab, decided purely: `steps(plan)` is applied and undone by `kernel`."""

from dataclasses import dataclass
from enum import StrEnum

from netlab.scenario import Backend, Emulation, Link, Tcp

CLIENT_ADDRESS, SERVER_ADDRESS = "10.77.0.1", "10.77.0.2"
PREFIX = 24
SUBNET = "10.77.0.0/24"
INTERFACE = "eth0"


class Place(StrEnum):
    """A network namespace of the lab."""

    CLIENT = "client"
    MIDDLE = "middle"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Veth:
    """A veth pair; an end's name in the middle says which way it leads."""

    place: Place
    interface: str
    peer_place: Place
    peer_interface: str
    mac: str
    peer_mac: str
    mtu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sysctl:
    """A sysctl of a namespace, such as net/ipv4/tcp_autocorking."""

    place: Place
    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offloads:
    """TSO, GSO and GRO of an end's interface."""

    place: Place
    interface: str
    on: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """Set an interface up, and with an address give it one."""

    place: Place
    interface: str
    address: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A permanent neighbour: ARP would cost the first packet a round trip."""

    place: Place
    interface: str
    address: str
    mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Metrics of the connected route."""

    place: Place
    interface: str
    address: str
    initcwnd: int | None
    congestion: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Netem:
    """A netem qdisc on an interface's egress."""

    place: Place
    interface: str
    emulation: Emulation


Step = Veth | Sysctl | Offloads | Up | Neighbour | Route | Netem

_CLIENT_MAC, _SERVER_MAC = "02:00:0a:4d:00:01", "02:00:0a:4d:00:02"
_MIDDLE_MACS = {"toclient": "02:00:0a:4d:01:01", "toserver": "02:00:0a:4d:01:02"}


def steps(link: Link, server_tcp: Tcp, client_tcp: Tcp, backend: Backend) -> tuple[Step, ...]:
    """Return what makes the lab, in order.

    With the relay: client -veth- middle -veth- server, and a process in the middle. With netem: one veth pair and a
    qdisc on each end's egress.
    """
    made: list[Step] = []
    if backend is Backend.RELAY:
        for place, middle, mac in ((Place.CLIENT, "toclient", _CLIENT_MAC), (Place.SERVER, "toserver", _SERVER_MAC)):
            made.append(
                Veth(
                    place=place,
                    interface=INTERFACE,
                    peer_place=Place.MIDDLE,
                    peer_interface=middle,
                    mac=mac,
                    peer_mac=_MIDDLE_MACS[middle],
                    mtu=link.mtu,
                )
            )
            made.append(Offloads(place=Place.MIDDLE, interface=middle, on=link.offloads))
            made.append(Up(place=Place.MIDDLE, interface=middle))
    else:
        made.append(
            Veth(
                place=Place.CLIENT,
                interface=INTERFACE,
                peer_place=Place.SERVER,
                peer_interface=INTERFACE,
                mac=_CLIENT_MAC,
                peer_mac=_SERVER_MAC,
                mtu=link.mtu,
            )
        )
    ends = (
        (Place.CLIENT, client_tcp, CLIENT_ADDRESS, SERVER_ADDRESS, _SERVER_MAC, link.to_server),
        (Place.SERVER, server_tcp, SERVER_ADDRESS, CLIENT_ADDRESS, _CLIENT_MAC, link.to_client),
    )
    for place, tcp, address, other, mac, emulation in ends:
        made += _sysctls(place, tcp)
        made.append(Offloads(place=place, interface=INTERFACE, on=link.offloads))
        made.append(Up(place=place, interface="lo"))
        made.append(Up(place=place, interface=INTERFACE, address=address))
        made.append(Neighbour(place=place, interface=INTERFACE, address=other, mac=mac))
        made.append(
            Route(
                place=place,
                interface=INTERFACE,
                address=address,
                initcwnd=tcp.initcwnd,
                congestion=tcp.congestion.value,
            )
        )
        if backend is Backend.NETEM:
            made.append(Netem(place=place, interface=INTERFACE, emulation=emulation))
    return tuple(made)


def _sysctls(place: Place, tcp: Tcp) -> list[Step]:
    wanted = {
        "net/ipv4/tcp_slow_start_after_idle": tcp.slow_start_after_idle,
        # Or one run's RTT and ssthresh leak into the next connection.
        "net/ipv4/tcp_no_metrics_save": tcp.no_metrics_save,
        # Ignores TCP_NODELAY where it bites: pinned, so that a segment is a write.
        "net/ipv4/tcp_autocorking": tcp.autocorking,
        # No router advertisements or duplicate address detection chatter in the captures.
        "net/ipv6/conf/default/disable_ipv6": True,
        "net/ipv6/conf/all/disable_ipv6": True,
    }
    return [Sysctl(place=place, name=name, value=str(int(value))) for name, value in wanted.items()]
