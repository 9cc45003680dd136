"""Names of the ClickHouse Native protocol's packet types, shared by the probe and the analyser.

Numbers: ClickHouse src/Core/Protocol.h.
"""

from enum import IntEnum


class ServerPacket(IntEnum):
    """Type byte of a packet from the server."""

    HELLO = 0
    DATA = 1
    EXCEPTION = 2
    PROGRESS = 3
    PONG = 4
    END_OF_STREAM = 5
    PROFILE_INFO = 6
    TOTALS = 7
    EXTREMES = 8
    TABLES_STATUS_RESPONSE = 9
    LOG = 10
    TABLE_COLUMNS = 11
    PART_UUIDS = 12
    READ_TASK_REQUEST = 13
    PROFILE_EVENTS = 14
    MERGE_TREE_ALL_RANGES_ANNOUNCEMENT = 15
    MERGE_TREE_READ_TASK_REQUEST = 16
    TIMEZONE_UPDATE = 17
    SSH_CHALLENGE = 18
    PREVIEW_DATA = 19

    @property
    def label(self) -> str:
        """The protocol's own spelling, such as "EndOfStream"."""
        return _SPELLING.get(self.name) or "".join(word.capitalize() for word in self.name.split("_"))


class ClientPacket(IntEnum):
    """Type byte of a packet from the client."""

    HELLO = 0
    QUERY = 1
    DATA = 2
    CANCEL = 3
    PING = 4
    TABLES_STATUS_REQUEST = 5
    KEEP_ALIVE = 6
    SCALAR = 7
    IGNORED_PART_UUIDS = 8
    READ_TASK_RESPONSE = 9
    MERGE_TREE_READ_TASK_RESPONSE = 10
    SSH_CHALLENGE_REQUEST = 11
    SSH_CHALLENGE_RESPONSE = 12
    QUERY_PLAN = 13
    MERGE_TREE_ALL_RANGES_ANNOUNCEMENT_RESPONSE = 14

    @property
    def label(self) -> str:
        """The protocol's own spelling, such as "Query"."""
        return _SPELLING.get(self.name) or "".join(word.capitalize() for word in self.name.split("_"))


_SPELLING = {
    "PART_UUIDS": "PartUUIDs",
    "IGNORED_PART_UUIDS": "IgnoredPartUUIDs",
    "SSH_CHALLENGE": "SSHChallenge",
    "SSH_CHALLENGE_REQUEST": "SSHChallengeRequest",
    "SSH_CHALLENGE_RESPONSE": "SSHChallengeResponse",
}
