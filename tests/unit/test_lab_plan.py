"""What the kernel is told to make a lab, by backend and settings."""

import pytest

from netlab.lab.plan import (
    CLIENT_ADDRESS,
    INTERFACE,
    SERVER_ADDRESS,
    Neighbour,
    Netem,
    Offloads,
    Place,
    Route,
    Sysctl,
    Up,
    Veth,
    steps,
)
from netlab.scenario import Backend, Congestion, Emulation, Link, Tcp
from netlab.units import ms

LINK = Link(to_client=Emulation(delay=ms(30)), to_server=Emulation(delay=ms(2)), mtu=1400)
SERVER = Tcp(initcwnd=8, congestion=Congestion.BBR, slow_start_after_idle=False)
CLIENT = Tcp()


def of_kind(kind: type, backend: Backend, link: Link = LINK):
    return [step for step in steps(link, SERVER, CLIENT, backend) if isinstance(step, kind)]


def test_the_relay_gets_a_pair_of_interfaces_from_each_end_and_no_qdisc():
    pairs = of_kind(Veth, Backend.RELAY)
    assert [(p.place, p.interface, p.peer_place, p.peer_interface, p.mtu) for p in pairs] == [
        (Place.CLIENT, INTERFACE, Place.MIDDLE, "toclient", 1400),
        (Place.SERVER, INTERFACE, Place.MIDDLE, "toserver", 1400),
    ]
    assert of_kind(Netem, Backend.RELAY) == []


def test_netem_delays_each_direction_at_the_end_that_sends_it():
    (pair,) = of_kind(Veth, Backend.NETEM)
    assert (pair.place, pair.peer_place) == (Place.CLIENT, Place.SERVER)
    assert {step.place: step.emulation.delay for step in of_kind(Netem, Backend.NETEM)} == {
        Place.SERVER: ms(30),
        Place.CLIENT: ms(2),
    }


@pytest.mark.parametrize("backend", [Backend.RELAY, Backend.NETEM])
def test_each_end_gets_its_own_settings(backend: Backend):
    routes = {r.place: (r.address, r.initcwnd, r.congestion) for r in of_kind(Route, backend)}
    assert routes == {Place.SERVER: (SERVER_ADDRESS, 8, "bbr"), Place.CLIENT: (CLIENT_ADDRESS, None, "cubic")}
    sysctls = {(s.place, s.name.rpartition("/")[2]): s.value for s in of_kind(Sysctl, backend)}
    assert sysctls[Place.SERVER, "tcp_slow_start_after_idle"] == "0"
    assert sysctls[Place.CLIENT, "tcp_slow_start_after_idle"] == "1"
    assert sysctls[Place.SERVER, "tcp_no_metrics_save"] == sysctls[Place.CLIENT, "tcp_no_metrics_save"] == "1"
    assert sysctls[Place.SERVER, "tcp_autocorking"] == "0"


@pytest.mark.parametrize("backend", [Backend.RELAY, Backend.NETEM])
def test_no_frame_is_ever_spent_on_finding_the_other_end(backend: Backend):
    macs = {}
    for pair in of_kind(Veth, backend):
        macs[pair.place] = pair.mac
        macs.setdefault(pair.peer_place, pair.peer_mac)
    neighbours = {n.place: (n.address, n.mac) for n in of_kind(Neighbour, backend)}
    assert neighbours == {
        Place.CLIENT: (SERVER_ADDRESS, macs[Place.SERVER]),
        Place.SERVER: (CLIENT_ADDRESS, macs[Place.CLIENT]),
    }


@pytest.mark.parametrize("backend", [Backend.RELAY, Backend.NETEM])
@pytest.mark.parametrize("on", [True, False])
def test_offloads_are_alike_on_the_whole_path(backend: Backend, on: bool):
    found = of_kind(Offloads, backend, Link(offloads=on))
    assert {step.on for step in found} == {on}
    ends = {(step.place, step.interface) for step in found}
    assert {(Place.CLIENT, INTERFACE), (Place.SERVER, INTERFACE)} <= ends


@pytest.mark.parametrize("backend", [Backend.RELAY, Backend.NETEM])
def test_nothing_is_used_before_it_is_made(backend: Backend):
    there, addressed = set(), set()
    for step in steps(LINK, SERVER, CLIENT, backend):
        match step:
            case Veth():
                there |= {(step.place, step.interface), (step.peer_place, step.peer_interface)}
            case Up(interface="lo"):
                pass
            case Up():
                assert (step.place, step.interface) in there
                addressed |= {step.place} if step.address else set()
            case Route() | Neighbour():
                assert step.place in addressed
            case Offloads() | Netem():
                assert (step.place, step.interface) in there
            case Sysctl():
                pass
