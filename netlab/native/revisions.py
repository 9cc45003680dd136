"""Protocol revisions: which field appears from which on. A connection speaks min(client's, server's).

Numbers: ClickHouse src/Core/ProtocolDefines.h, and what servers of revisions 54412, 54488 and 54492 were seen to send.
"""

OLDEST = 54032  # before it there is no ClientInfo; such peers are long gone
NEWEST = 54492
# Yields Log, ProfileEvents, TimezoneUpdate and every Progress field in the simplest layout: no sparse columns (54465),
# no chunks (54470), no compressed logs (54481).
PROBE = 54464

TIMEZONE = 54058
QUOTA_KEY_IN_CLIENT_INFO = 54060
DISPLAY_NAME = 54372
VERSION_PATCH = 54401
WRITE_INFO_IN_PROGRESS = 54420
SETTINGS_AS_STRINGS = 54429
INTERSERVER_SECRET = 54441
OPEN_TELEMETRY = 54442
DISTRIBUTED_DEPTH = 54448
INITIAL_START_TIME = 54449
PARALLEL_REPLICAS = 54453
CUSTOM_SERIALIZATION = 54454
ADDENDUM = 54458
PARAMETERS = 54459
ELAPSED_IN_PROGRESS = 54460
PASSWORD_RULES = 54461
NONCE = 54462
TOTAL_BYTES_IN_PROGRESS = 54463
READ_ONLY_IN_TABLES_STATUS = 54467
ROWS_BEFORE_AGGREGATION = 54469
CHUNKED = 54470
VERSIONED_PARALLEL_REPLICAS = 54471
EXTERNAL_ROLES = 54472
SERVER_SETTINGS = 54474
SCRIPT_POSITION = 54475
JWT = 54476
QUERY_PLAN = 54477
CLUSTER_FUNCTION = 54479
OUT_OF_ORDER_BUCKETS = 54480
COMPRESSED_LOGS = 54481
CLIENT_AGENT = 54485
INTERNAL_QUERY = 54486
CURRENT_ROLES = 54488
STRING_OFFSETS = 54492

# One revision of each span between two gates that change a packet after the handshake: what a stream whose handshake
# was not seen is tried with.
PLAUSIBLE = (
    54058,
    54060,
    54401,
    54420,
    54429,
    54441,
    54442,
    54448,
    54449,
    54453,
    54454,
    54459,
    54460,
    54463,
    54469,
    54470,
    54472,
    54475,
    54476,
    54480,
    54481,
    54485,
    54486,
    54488,
    54492,
)
