"""The probe: one query -> one Sample.

`transport.connect` makes the connection, `query.Session` logs in and times queries.
"""

from netlab.native.connection import Login
from netlab.probe.query import BrokenAnswerError, Session, Watch
from netlab.probe.transport import SocketTransport, connect

__all__ = ["BrokenAnswerError", "Login", "Session", "SocketTransport", "Watch", "connect"]
