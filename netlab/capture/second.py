"""A second opinion on a capture, from Wireshark's dissectors: tshark, driven by pyshark.

Slow (thousands of packets a second), and the reason it exists is that it shares no line with our own reader. pyshark
needs the main thread and no running event loop. Callers that meet CaptureError use `psh.psh_table` and say so.
"""

import asyncio
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypedDict

from netlab.capture.psh import table_of
from netlab.capture.read import open_capture
from netlab.diagnosis import PshTable
from netlab.errors import CaptureError
from netlab.units import NS_PER_S

_INSTALL = "apt-get install tshark"
_CUT = "cut short in the middle of a packet"
_ROOT_WARNING = "Running as user"
# Only these layers are printed, the others named; names are not resolved, and numbers are the ones in the packet.
_LAYERS = ["-j", "frame ip ipv6 tcp"]
_PREFERENCES = {"tcp.relative_sequence_numbers": "FALSE", "ip.defragment": "FALSE", "ipv6.defragment": "FALSE"}


class Opinion(TypedDict):
    """One TCP segment as tshark sees it. `at` is in ns; `seq`, `ack` and `window` are raw."""

    frame: int
    at: int
    source_address: str
    source_port: int
    destination_address: str
    destination_port: int
    seq: int
    ack: int
    flags: int
    window: int
    length: int


def pyshark_psh_table(path: str | Path, port: int) -> PshTable:
    """Return the PSH table of `path` for the server port, as pyshark reads it.

    Raises CaptureError when tshark is missing or fails. A capture that is cut short gives the table of what is whole.
    """
    sizes: Counter[int] = Counter()
    for packet in _packets(path, f"tcp.flags.push == 1 && tcp.len > 0 && tcp.srcport == {port}"):
        sizes[int(packet.tcp.len)] += 1
    return table_of(sizes)


def second_opinion(path: str | Path) -> Iterator[Opinion]:
    """Yield every TCP segment of `path` as tshark sees it. Raises CaptureError."""
    for packet in _packets(path, "tcp"):
        tcp = packet.tcp
        ip = packet.ipv6 if "ipv6" in packet else packet.ip
        yield Opinion(
            frame=int(packet.frame_info.number),
            at=_nanoseconds(str(packet.frame_info.time_epoch)),
            source_address=str(ip.src),
            source_port=int(tcp.srcport),
            destination_address=str(ip.dst),
            destination_port=int(tcp.dstport),
            seq=int(tcp.seq_raw),
            ack=int(tcp.ack_raw),
            flags=int(str(tcp.flags), 16) & 0xFF,
            window=int(tcp.window_size_value),
            length=int(tcp.len),
        )


def _packets(path: str | Path, display_filter: str) -> Iterator[Any]:
    """Yield pyshark's packets, and end quietly where the file is cut short. Raises CaptureError."""
    with ExitStack() as stack:
        open_capture(path).close()  # says better than tshark what is wrong with a path or a file that is no capture
        try:
            from pyshark import FileCapture
            from pyshark.capture.capture import TSharkCrashException
            from pyshark.tshark.tshark import TSharkNotFoundException, TSharkVersionException
        except ImportError as error:
            raise CaptureError("pyshark is not installed", hint="pip install pyshark") from error
        loop = stack.enter_context(_event_loop())
        crash = None
        try:
            capture = FileCapture(
                str(Path(path).resolve()),
                use_json=True,
                keep_packets=False,
                display_filter=display_filter,
                custom_parameters=_LAYERS,
                override_prefs=_PREFERENCES,
                eventloop=loop,
            )
            stack.callback(_forget, capture)
            yield from capture
        except TSharkNotFoundException as error:
            raise CaptureError("tshark is not installed", hint=_INSTALL) from error
        except (TSharkVersionException, OSError) as error:
            raise CaptureError(f"{path}: tshark cannot be run: {error}", hint=_INSTALL) from error
        except TSharkCrashException as error:
            crash = error
        loop.run_until_complete(asyncio.gather(*capture._stderr_handling_tasks))
        last = capture._last_error_line or ""
        complained = bool(last) and not last.startswith(_ROOT_WARNING)
        if (crash is not None or complained) and _CUT not in last:
            raise CaptureError(f"{path}: tshark failed: {last or crash}") from crash


def _forget(capture: Any) -> None:
    """Close `capture`, and keep it from closing itself, and failing again, when it is collected."""
    from pyshark.capture.capture import TSharkCrashException

    try:
        capture.close()
    except TSharkCrashException:
        pass  # it was reported when it was first raised
    finally:
        capture._running_processes.clear()


@contextmanager
def _event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give pyshark an event loop of its own, current and with a child watcher; remove all of it afterwards."""
    if threading.current_thread() is not threading.main_thread():
        raise CaptureError("pyshark works on the main thread only")
    if asyncio._get_running_loop() is not None:
        raise CaptureError("pyshark does not work inside a running event loop")
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    # Python's default watcher is a thread per child on 3.11, which loses exit statuses under pyshark.
    watcher = asyncio.PidfdChildWatcher()
    watcher.attach_loop(loop)
    _watch(watcher)
    try:
        yield loop
    finally:
        _watch(None)
        watcher.close()
        asyncio.set_event_loop(None)
        loop.close()


def _watch(watcher: asyncio.AbstractChildWatcher | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12, gone in 3.14
        asyncio.set_child_watcher(watcher)  # type: ignore[arg-type]  # None: back to the default


def _nanoseconds(epoch: str) -> int:
    seconds, _, fraction = epoch.partition(".")
    try:
        return int(seconds) * NS_PER_S + int(fraction.ljust(9, "0")[:9] or 0)
    except ValueError as error:
        raise CaptureError(f'tshark gave a time in a form we do not know: "{epoch}"') from error
