"""The ClickHouse Native protocol without I/O, both directions: bytes in, packets out, and the reverse.

`connection` is a client; `stream` reads either direction; `labels` reads both as a capture shows them; `server` and
`client` hold the packets.
"""
