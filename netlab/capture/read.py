"""Read a capture: `with open_capture(path) as capture: for segment in capture.segments(): ...`.

pcap and pcapng in every byte order and resolution, gzip and zstd of them, from a path or standard input ("-").
Streaming: memory does not grow with the file. Damage and cuts end in a note of the summary, never in a crash.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from netlab.capture.container import Container, Frame, open_container
from netlab.capture.decode import Decoder
from netlab.capture.source import open_source
from netlab.errors import UsageError
from netlab.segments import CaptureSummary, Segment


class Capture:
    """An open capture file. Use it as a context manager, and read it once."""

    def __init__(self, container: Container, name: str, stack: ExitStack) -> None:
        self.name = name
        self.container = container
        self.decoder = Decoder(container.interfaces)
        self._stack = stack
        self._started = False

    def __enter__(self) -> "Capture":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        self._stack.close()

    def frames(self) -> Iterator[Frame]:
        """Yield every packet as it lies in the file, TCP or not. Raises CaptureError, UsageError on a second call."""
        if self._started:
            raise UsageError(f"{self.name}: a capture is read once", hint="open it again")
        self._started = True
        return self.container.frames()

    def segments(self) -> Iterator[Segment]:
        """Yield the TCP segments in file order. Raises CaptureError, UsageError on a second call."""
        decode = self.decoder.segment
        for frame in self.frames():
            segment = decode(frame)
            if segment is not None:
                yield segment

    def summary(self) -> CaptureSummary:
        """Return what was in the file. A file that nothing was read from yet is read to its end first.

        `tcp_segments` counts the segments that were decoded. Raises CaptureError.
        """
        if not self._started:
            for _ in self.segments():
                pass
        container, decoder = self.container, self.decoder
        notes = list(container.notes)
        notes += [f"{count} {reason}" for reason, count in sorted(decoder.skipped.items())]
        if not container.ended:
            notes.append(f"only the first {container.packets} packets were read")
        elif not container.packets:
            notes.append("the capture holds no packet")
        elif not decoder.segments:
            notes.append(f"none of the {container.packets} packets is a TCP segment")
        return CaptureSummary(
            packets=container.packets,
            tcp_segments=decoder.segments,
            interfaces=tuple(container.interfaces),
            truncated=container.truncated,
            comment=container.comment,
            notes=tuple(notes),
        )


def open_capture(path: str | Path) -> Capture:
    """Open the capture file `path`, or standard input for "-".

    Raises CaptureError when it cannot be opened, is empty, or is no capture. A capture of no packets is none of these.
    """
    with ExitStack() as stack:
        source = open_source(path, stack)
        name = "standard input" if str(path) == "-" else str(path)
        return Capture(open_container(source, name), name, stack.pop_all())
