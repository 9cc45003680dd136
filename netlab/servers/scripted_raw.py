"""One client of the scripted server in a plain request/response protocol: N bytes or a line in, opaque writes out."""

import socket as sockets
from collections.abc import Iterator

from netlab.errors import RemoteProtocolError
from netlab.servers.scripted_native import Log, Play
from netlab.servers.scripted_packets import opaque
from netlab.servers.scripted_player import Player, StoppedError, actions, writes

_RECEIVE = 1 << 16
_KEPT = 1 << 16  # bytes of a request that answers are chosen by; a line may not be longer


class RawSession:
    """One connection from its first byte to its last."""

    def __init__(self, connection: sockets.socket, play: Play, log: Log) -> None:
        self._socket = connection
        self._play = play
        self._log = log
        self._ahead = bytearray()  # read beyond the request in hand
        self._player = Player(connection, self._look)

    def run(self) -> None:
        """Serve until the client leaves. Raises NetlabError, OSError."""
        for number, request in enumerate(self._requests(), start=1):
            answers = (answer for answer in self._play.train.answers if answer.matches(request.decode("latin-1")))
            answer = next(answers, None)
            if answer is None:
                raise RemoteProtocolError("no answer of the train fits the request")
            self._log.playing(number, self._player)
            try:
                self._player.play(writes(actions(answer.steps, opaque), self._play.delivery))
            finally:
                self._log.wrote(number, self._player)

    def _requests(self) -> Iterator[bytes]:
        wanted = self._play.train.request
        while True:
            request = self._sized(wanted.size) if wanted.size else self._line(wanted.until)
            if request is None:
                return
            yield request

    def _sized(self, size: int) -> bytes | None:
        kept, left = bytearray(), size
        while left:
            if not self._ahead and not self._receive():
                return None
            piece = bytes(self._ahead[:left])
            del self._ahead[:left]
            left -= len(piece)
            kept += piece[: _KEPT - len(kept)]
        return bytes(kept)

    def _line(self, until: bytes) -> bytes | None:
        while (at := self._ahead.find(until)) < 0:
            if len(self._ahead) > _KEPT:
                raise RemoteProtocolError(f"a request of more than {_KEPT} bytes")
            if not self._receive():
                return None
        line = bytes(self._ahead[:at])
        del self._ahead[: at + len(until)]
        return line

    def _look(self) -> bool:
        """Take what the client sends during an answer. One that has closed its half still gets the answer."""
        if len(self._ahead) > _KEPT:
            raise StoppedError("the client sends requests without waiting for answers")
        return self._receive()

    def _receive(self) -> bool:
        data = self._socket.recv(_RECEIVE)
        self._ahead += data
        return bool(data)
