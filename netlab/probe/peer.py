"""What the other end turned out to be: words for a refused login, and for a server that is no ClickHouse."""

from netlab.errors import RemoteProtocolError, ServerExceptionError
from netlab.native.messages import ServerException

_NATIVE_PORT = "ClickHouse's native port is 9000 by default"
# First bytes -> what sends them, and what to do.
_BANNERS = (
    (b"HTTP/", "an HTTP server", f"{_NATIVE_PORT}, 8123 is its HTTP port"),
    (b"SSH-", "an SSH server", _NATIVE_PORT),
    (b"\x15\x03", "a TLS server", f"{_NATIVE_PORT}, 9440 is the encrypted one, which netlab does not speak"),
    (b"-ERR", "a Redis server", _NATIVE_PORT),
    (b"220 ", "a mail or FTP server", _NATIVE_PORT),
    (b"* OK", "an IMAP server", _NATIVE_PORT),
)
# Codes: ClickHouse src/Common/ErrorCodes.cpp.
_REFUSALS = {
    81: "check the database's name",
    192: "check the user's name",
    193: "check the password",
    194: "a password is needed",
    195: "the server does not let this address in",
    516: "check the user's name and the password",
}


def describe(peer: str, seen: bytes) -> RemoteProtocolError:
    """Return the error for a peer whose first bytes, `seen`, are no ClickHouse greeting."""
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in seen.split(b"\r\n")[0][:40])
    for banner, name, hint in _BANNERS:
        if seen.startswith(banner):
            return RemoteProtocolError(f'{peer} is {name}, no ClickHouse: it sent "{shown}"', hint=hint)
    if seen[4:5] == b"\x0a" and seen[3:4] == b"\0":  # length, sequence number 0, protocol version 10
        return RemoteProtocolError(f'{peer} is a MySQL server, no ClickHouse: it sent "{shown}"', hint=_NATIVE_PORT)
    what = f'{peer} does not speak the ClickHouse Native protocol: it sent "{shown}" (hex {seen[:16].hex()})'
    return RemoteProtocolError(what, hint=_NATIVE_PORT)


def refusal(exception: ServerException, password: str) -> ServerExceptionError:
    """Return the error for an Exception in answer to a login; whatever the server says, the password is not shown."""
    # Servers of today add paragraphs of advice; the first line says what is wrong.
    message = plain(exception).split("\n")[0].strip()
    message = message.replace(password, "***") if password else message
    return ServerExceptionError(exception.code, exception.name, message, hint=_REFUSALS.get(exception.code, ""))


def plain(exception: ServerException) -> str:
    """Return the exception's message without its name, which servers repeat in front of it."""
    return exception.message.removeprefix(f"{exception.name}: ")
