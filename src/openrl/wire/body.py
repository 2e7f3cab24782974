"""Bodies of requests: decompress them, never beyond a limit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import zstandard

from openrl.wire.limits import Limits
from openrl.wire.refusal import Malformed, too_large

PIECE_BYTES = 1 << 16
PREFIX_BYTES = 1024
FEED_BYTES = 256
WINDOW_BYTES = 1 << 25  # memory that a frame may ask for, whatever is in it


def decompress(body: bytes, encoding: str, limits: Limits) -> bytes:
    """The content of `body`, whose Content-Encoding is `encoding` ("" or identity, gzip or zstd).

    Raises:
        TooLarge: the content is larger than `limits.decompressed_bytes`; no more than that was ever held.
        Malformed: the bytes are not of that encoding, or are cut short.
    """
    if encoding in ("", "identity"):
        return body
    allowed = limits.decompressed_bytes
    out = bytearray()
    for piece in pieces(body, encoding):
        out += piece
        if len(out) > allowed:
            raise too_large("decompressed_bytes", allowed)
    return bytes(out)


def prefix(body: bytes, encoding: str) -> bytes:
    """The first bytes of the content, for telling whose request it is when all of it is too much."""
    if encoding in ("", "identity"):
        return body[:PREFIX_BYTES]
    try:
        return next((piece for piece in pieces(body, encoding) if piece), b"")[:PREFIX_BYTES]
    except Malformed:
        return b""


def pieces(body: bytes, encoding: str) -> Iterator[bytes]:
    """The content, bit by bit."""
    if encoding == "gzip":
        return gunzip(body)
    if encoding == "zstd":
        return unzstd(body)
    raise Malformed(f"Content-Encoding {encoding!r} is not known here: send gzip, zstd or none")


def gunzip(body: bytes) -> Iterator[bytes]:
    """Raises Malformed in the middle, as soon as the bytes are not gzip."""
    reader = zlib.decompressobj(wbits=31)
    try:
        while body and not reader.eof:
            yield reader.decompress(body, PIECE_BYTES)
            body = reader.unconsumed_tail
        yield reader.flush()
    except zlib.error as error:
        raise Malformed(f"the body is not gzip: {error}") from error
    if not reader.eof:
        raise Malformed("the body's gzip data is cut short")


def unzstd(body: bytes) -> Iterator[bytes]:
    """As `gunzip`. Fed little by little: 4 bytes can hold 128 KiB."""
    rest = memoryview(body)
    reader = new_frame()
    begun = False
    while rest or begun:
        try:
            piece = reader.decompress(rest[:FEED_BYTES])
        except zstandard.ZstdError as error:
            raise Malformed(f"the body is not zstd: {error}") from error
        begun = not reader.eof
        if begun and not rest:
            raise Malformed("the body's zstd data is cut short")
        rest = rest[FEED_BYTES:] if begun else rest[min(FEED_BYTES, len(rest)) - len(reader.unused_data) :]
        reader = reader if begun else new_frame()
        yield piece


def new_frame() -> zstandard.ZstdDecompressionObj:
    return zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES).decompressobj()
