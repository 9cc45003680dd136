"""An exchange in the making: what `exchange` collects and `view` judges."""

from netlab.analysis.flow import Placed
from netlab.analysis.labels import Mark
from netlab.analysis.transfer import SenderClock
from netlab.diagnosis import ExchangeKind


class Raw:
    """One exchange before judgement: its segments in capture order and what the connection was before it."""

    __slots__ = (
        "clock",
        "cut",
        "down_before",
        "down_edge",
        "down_una",
        "exceptions",
        "first_down",
        "first_row_at",
        "first_up",
        "head",
        "kind",
        "last_activity",
        "last_byte_at",
        "last_down_at",
        "last_up_at",
        "marks",
        "placed",
        "query",
        "request_bytes",
        "request_end_at",
        "response_bytes",
        "response_end_at",
        "up_edge",
        "up_una",
    )

    def __init__(self) -> None:
        self.kind = ExchangeKind.QUERY
        self.placed: list[Placed] = []
        self.marks: tuple[list[Mark], list[Mark]] = ([], [])  # up, down
        self.first_up: Placed | None = None
        self.first_down: Placed | None = None
        self.last_activity: int | None = None  # last data of either side before the request
        self.last_down_at: int | None = None  # last data of the server before this exchange
        self.last_up_at: int | None = None
        self.down_before = False
        self.down_una = self.down_edge = self.up_una = self.up_edge = 0
        self.query: str | None = None
        self.exceptions: list[str] = []
        self.last_byte_at: int | None = None  # newest new byte of the response, or the newest that filled a hole
        self.first_row_at: int | None = None
        self.response_end_at: int | None = None
        self.request_bytes = self.response_bytes = 0
        self.request_end_at: int | None = None  # last new byte of the request
        self.clock: SenderClock | None = None
        self.cut = 0  # segments left out of the middle
        self.head = b""
