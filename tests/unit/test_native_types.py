"""Data types: what each one's values look like on the wire, and type names that are none."""

from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from uuid import UUID

import pytest

from netlab.errors import RemoteProtocolError, UsageError
from netlab.native.blocks import Block, Column, Dialect, encode_block
from netlab.native.low_cardinality import Sparse
from netlab.native.types import UnsupportedError, codec, split
from netlab.native.wire import Reader

CASES = [
    ("Int8", [-1, 5], "ff05"),
    ("UInt16", [258], "0201"),
    ("Int128", [-2], "fe" + "ff" * 15),
    ("UInt256", [1], "01" + "00" * 31),
    ("Float32", [1.0], "0000803f"),
    ("BFloat16", [1.0], "803f"),
    ("Float64", [1.0], "000000000000f03f"),
    ("Bool", [True, False], "0100"),
    ("Date", [1], "0100"),
    ("Date32", [-1], "ffffffff"),
    ("DateTime('Europe/Berlin')", [1], "01000000"),
    ("DateTime64(3, 'UTC')", [-1], "ff" * 8),
    ("Time64(6)", [2], "02" + "00" * 7),
    ("IntervalDay", [3], "03" + "00" * 7),
    ("Enum8('a' = -1, 'it\\'s, (b' = 2)", ["a", "it's, (b"], "ff02"),
    ("Enum16('x' = 300)", ["x"], "2c01"),
    ("Decimal(9, 2)", [Decimal("-0.01")], "ffffffff"),
    ("Decimal(38, 3)", [Decimal("1.000")], "e803" + "00" * 14),
    ("Decimal64(1)", [Decimal("0.1")], "01" + "00" * 7),
    ("UUID", [UUID("61f0c404-5cb3-11e7-907b-a6006ad3dba0")], "e711b35c04c4f061a0dbd36a00a67b90"),
    ("IPv4", [IPv4Address("1.2.3.4")], "04030201"),
    ("IPv6", [IPv6Address("::1")], "00" * 15 + "01"),
    ("String", ["ab", ""], "02616200"),
    ("FixedString(3)", [b"ab\0"], "616200"),
    ("Nothing", [None, None], "3030"),
    ("Nullable(UInt8)", [None, 7], "01000007"),
    ("Array(UInt8)", [[1, 2], [], [3]], "0200000000000000" * 2 + "0300000000000000" + "010203"),
    ("Tuple(UInt8, String)", [(1, "x")], "010178"),
    ("Tuple(a UInt8, `b c` Nullable(UInt8))", [(1, None)], "010100"),
    ("Tuple()", [(), ()], "3030"),
    ("Map(String, UInt8)", [{"k": 1}], "0100000000000000" + "016b01"),
    ("Nested(a UInt8)", [[(1,), (2,)]], "0200000000000000" + "0102"),
    ("Point", [(1.0, 0.0)], "000000000000f03f" + "00" * 8),
    ("SimpleAggregateFunction(sum, UInt8)", [9], "09"),
    (
        "LowCardinality(String)",
        ["x", "x", "y"],
        "0006000000000000" + "0300000000000000" + "0001780179" + "0300000000000000" + "010102",
    ),
]


def finish(step):
    """Run a step that has all its bytes."""
    with pytest.raises(StopIteration) as stop:
        next(step)
    return stop.value.value


@pytest.mark.parametrize(("name", "values", "raw"), CASES, ids=[name for name, _, _ in CASES])
def test_values_on_the_wire(name, values, raw):
    assert codec(name).write(values).hex() == raw
    reader = Reader()
    reader.feed(bytes.fromhex(raw))
    assert finish(codec(name).read(reader, len(values))) == values
    assert reader.unread == 0


@pytest.mark.parametrize(("name", "values", "raw"), CASES, ids=[name for name, _, _ in CASES])
def test_skipping_passes_over_the_same_bytes(name, values, raw):
    reader = Reader()
    reader.feed(bytes.fromhex(raw) + b"rest")
    finish(codec(name).skip(reader, len(values)))
    assert reader.unread == 4


OFFSETS = [
    ("String", ["ab", "c", ""], "02" + "00" * 7 + ("03" + "00" * 7) * 2 + "616263"),
    ("Nullable(String)", ["x", None], "0001" + ("01" + "00" * 7) * 2 + "78"),
    ("Array(String)", [["x", "y"]], "02" + "00" * 7 + "01" + "00" * 7 + "02" + "00" * 7 + "7879"),
]


@pytest.mark.parametrize(("name", "values", "raw"), OFFSETS)
def test_strings_as_offsets_and_bytes(name, values, raw):
    layout = codec(name, offsets=True)
    assert layout.write(values).hex() == raw
    reader = Reader()
    reader.feed(bytes.fromhex(raw) * 2 + b"rest")
    assert finish(layout.read(reader, len(values))) == values
    finish(layout.skip(reader, len(values)))
    assert reader.unread == 4


def test_a_dictionarys_strings_have_no_offsets():
    name = "LowCardinality(String)"
    assert codec(name, offsets=True).write(["x"]) == codec(name).write(["x"])


@pytest.mark.parametrize("ends", ["02" + "00" * 7 + "01" + "00" * 7, "00" * 8 + "ff" * 8])
def test_string_offsets_that_cannot_be(ends):
    reader = Reader()
    reader.feed(bytes.fromhex(ends))
    with pytest.raises(RemoteProtocolError):
        finish(codec("String", offsets=True).read(reader, 2))


def test_low_cardinality_of_nullable_keeps_null_apart_from_empty():
    values = [None, "", "z", None]
    reader = Reader()
    layout = codec("LowCardinality(Nullable(String))")
    reader.feed(layout.write_prefix() + layout.write(values))
    finish(layout.read_prefix(reader))
    assert finish(layout.read(reader, 4)) == values


def test_low_cardinality_takes_wider_indices_for_more_keys():
    values = [str(number) for number in range(70_000)]
    reader = Reader()
    layout = codec("LowCardinality(String)")
    reader.feed(layout.write(values))
    assert finish(layout.read(reader, len(values))) == values


@pytest.mark.parametrize("values", [[], [0, 0], [0, 5, 0, 0, 7, 0], [1, 2], [0, 9]])
def test_sparse(values):
    layout = Sparse(codec("UInt8"))
    reader = Reader()
    reader.feed(layout.write(values) + b"rest")
    assert finish(layout.read(reader, len(values))) == values
    assert reader.unread == 4
    reader.feed(layout.write(values))
    reader.position += 4
    finish(layout.skip(reader, len(values)))
    assert reader.unread == 0


@pytest.mark.parametrize("name", ["JSON", "Variant(UInt8, String)", "Dynamic", "AggregateFunction(sum, UInt8)", "Foo"])
def test_types_without_a_known_layout_are_named(name):
    with pytest.raises(UnsupportedError) as error:
        codec(name)
    assert name in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "Array(",
        "Array()",
        "Array(UInt8, UInt8)",
        "Map(String)",
        "Decimal(80, 2)",
        "Decimal(3, 9)",
        "Decimal(x)",
        "FixedString(0)",
        "FixedString(99999999999)",
        "Enum8(a = 1)",
        "LowCardinality()",
        "Array(" * 5000 + "UInt8" + ")" * 5000,
    ],
)
def test_names_that_are_no_types(name):
    with pytest.raises((RemoteProtocolError, UnsupportedError)):
        codec(name)


def test_arguments_are_cut_at_their_own_commas():
    assert split("a, b(c, d), 'e,f)', `g,h`") == ["a", " b(c, d)", " 'e,f)'", " `g,h`"]
    assert split("") == []


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("Array(UInt8)", "0200000000000000" + "0100000000000000" + "0102"),
        ("Array(String)", "ff" * 8 + "ff" * 7 + "7f"),
        ("Enum8('a' = 1)", "0909"),
        ("LowCardinality(UInt8)", "0500000000000000" + "0100000000000000"),
        ("LowCardinality(UInt8)", "0006000000000000" + "01" + "00" * 7 + "09" + "02" + "00" * 7 + "0005"),
        ("LowCardinality(UInt8)", "0006000000000000" + "01" + "00" * 7 + "09" + "09" + "00" * 7),
        ("String", "ffffffffffffffff7f"),
    ],
)
def test_values_that_cannot_be(name, raw):
    reader = Reader()
    reader.feed(bytes.fromhex(raw))
    with pytest.raises(RemoteProtocolError):
        finish(codec(name).read(reader, 2))


@pytest.mark.parametrize(
    ("name", "value"),
    [("UInt8", 300), ("UInt8", "x"), ("FixedString(1)", b"ab"), ("Tuple(UInt8)", (1, 2)), ("Enum8('a' = 1)", "b")],
)
def test_a_value_that_does_not_fit_names_its_column(name, value):
    block = Block(columns=(Column(name="c", type=name, values=[value]),), rows=1)
    with pytest.raises(UsageError, match="column c"):
        encode_block(block, Dialect(revision=54464))


def test_a_block_needs_as_many_values_as_rows():
    with pytest.raises(UsageError, match="a block of 2 rows"):
        encode_block(Block(columns=(Column(name="c", type="UInt8", values=[1]),), rows=2), Dialect(revision=54464))


def test_a_map_key_that_python_cannot_hash():
    reader = Reader()
    reader.feed(codec("Array(Tuple(Array(UInt8), UInt8))").write([[([1], 2)]]))
    with pytest.raises(RemoteProtocolError, match="key"):
        finish(codec("Map(Array(UInt8), UInt8)").read(reader, 1))
