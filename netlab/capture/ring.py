"""The kernel's receive ring of an AF_PACKET socket (TPACKET_V3): packets in shared memory, a block at a time.

A ring rather than a receive queue, since its size is not bounded by net.core.rmem_max, which unprivileged users cannot
raise and which a burst of 200 segments fills; and since a wake-up per block, not per packet, takes little time from
what is being measured. The kernel closes a block when it is full or some milliseconds old. Layouts:
linux/if_packet.h.
"""

import mmap
import socket
from collections.abc import Iterator
from struct import Struct
from typing import TypeAlias

# (at, data, length on the wire, sll_pkttype)
Packet: TypeAlias = tuple[int, bytes, int, int]

BLOCK = 1 << 18
# With a trickle of packets a block is used up per interval: 128 blocks bridge a second in which we get no processor.
_CLOSE_AFTER_MS = 8
_SOL_PACKET, _RX_RING, _STATISTICS, _VERSION, _TPACKET_V3 = 263, 5, 6, 10, 2
_REQUEST = Struct("@7I")
_BLOCK_HEAD = Struct("@4I").unpack_from  # behind the version: status, packets, offset of the first, length
_PACKET_HEAD = Struct("@6IHHIIH").unpack_from
_STATUS = Struct("@I")
_TO_USER, _VLAN_VALID, _VLAN_TPID_VALID = 1, 1 << 4, 1 << 6
_TAG = Struct(">HH")
_PKTTYPE = 48 + 10  # of the sockaddr_ll that follows the packet's header


class Ring:
    """The ring of one socket. What lay in the socket's receive queue before is gone."""

    def __init__(self, packets: socket.socket, size: int) -> None:
        """Give `packets` a ring of about `size` bytes, at least eight blocks. Raises OSError."""
        self._socket = packets
        self.blocks = max(8, size // BLOCK)
        packets.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V3)
        frame = 1 << 11
        request = _REQUEST.pack(BLOCK, self.blocks, frame, self.blocks * (BLOCK // frame), _CLOSE_AFTER_MS, 0, 0)
        packets.setsockopt(_SOL_PACKET, _RX_RING, request)
        self._memory = mmap.mmap(packets.fileno(), self.blocks * BLOCK)
        self._next = 0

    def statistics(self) -> tuple[int, int]:
        """Return the packets that came since the last call, the dropped ones included, and the dropped ones."""
        seen, drops, _ = Struct("@3I").unpack(self._socket.getsockopt(_SOL_PACKET, _STATISTICS, 12))
        return seen, drops

    def block(self) -> list[Packet] | None:
        """Return the packets of the oldest block that the kernel has closed, None if there is none."""
        base = self._next * BLOCK
        status, count, position, _ = _BLOCK_HEAD(self._memory, base + 8)
        if not status & _TO_USER:
            return None
        packets = list(self._packets(base + position, count))
        _STATUS.pack_into(self._memory, base + 8, 0)  # back to the kernel
        self._next = (self._next + 1) % self.blocks
        return packets

    def _packets(self, position: int, count: int) -> Iterator[Packet]:
        memory = self._memory
        for _ in range(count):
            step, seconds, nanoseconds, captured, wire, status, mac, _, _, tci, tpid = _PACKET_HEAD(memory, position)
            start = position + mac
            data = memory[start : start + captured]
            if status & _VLAN_VALID:
                # The kernel took the tag out of the frame; put it back where it was on the wire.
                tag = _TAG.pack(tpid if status & _VLAN_TPID_VALID else 0x8100, tci & 0xFFFF)
                data, wire = data[:12] + tag + data[12:], wire + 4
            yield seconds * 1_000_000_000 + nanoseconds, data, wire, memory[position + _PKTTYPE]
            position += step
