"""Bodies: decompressed within the limit, and refused with a word on what to do."""

from __future__ import annotations

import gzip
import pickle
import tracemalloc

import pytest
import zstandard

from openrl.wire import body
from openrl.wire.limits import Limits
from openrl.wire.refusal import Malformed, TooLarge, beyond

SMALL = Limits(decompressed_bytes=1000)
CONTENT = bytes(range(256)) * 3


@pytest.mark.parametrize(
    ("encoding", "sent"),
    [
        ("", CONTENT),
        ("identity", CONTENT),
        ("gzip", gzip.compress(CONTENT)),
        ("zstd", zstandard.compress(CONTENT)),
        ("zstd", zstandard.compress(CONTENT[:100]) + zstandard.compress(CONTENT[100:])),
    ],
)
def test_every_encoding_gives_the_content_back(encoding: str, sent: bytes) -> None:
    assert body.decompress(sent, encoding, SMALL) == CONTENT


@pytest.mark.parametrize(("encoding", "sent"), [("gzip", gzip.compress(b"")), ("zstd", zstandard.compress(b""))])
def test_nothing_compressed_is_nothing(encoding: str, sent: bytes) -> None:
    assert body.decompress(sent, encoding, SMALL) == b""


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_a_bomb_is_refused_before_it_takes_memory(compress: object) -> None:
    bomb = compress(bytes(200_000_000))  # type: ignore[operator]
    encoding = "gzip" if compress is gzip.compress else "zstd"
    tracemalloc.start()
    with pytest.raises(TooLarge, match=r"limits\.decompressed_bytes.*send less"):
        body.decompress(bomb, encoding, Limits(decompressed_bytes=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20


@pytest.mark.parametrize(
    ("encoding", "sent", "complaint"),
    [
        ("gzip", b"not gzip at all", "not gzip"),
        ("gzip", gzip.compress(CONTENT)[:-9], "cut short"),
        ("zstd", b"not zstd at all", "not zstd"),
        ("zstd", zstandard.compress(CONTENT)[:-9], "cut short"),
        ("br", b"", "Content-Encoding 'br'"),
    ],
)
def test_bytes_of_another_encoding_are_malformed(encoding: str, sent: bytes, complaint: str) -> None:
    with pytest.raises(Malformed, match=complaint):
        body.decompress(sent, encoding, SMALL)


@pytest.mark.parametrize(
    ("encoding", "sent"), [("", CONTENT), ("gzip", gzip.compress(CONTENT)), ("zstd", zstandard.compress(CONTENT))]
)
def test_the_first_bytes_can_be_read_alone(encoding: str, sent: bytes) -> None:
    assert CONTENT.startswith(body.prefix(sent, encoding))
    assert len(body.prefix(sent, encoding)) > 100


def test_the_first_bytes_of_garbage_are_none() -> None:
    assert body.prefix(b"garbage", "zstd") == b""


def test_refusals_survive_pickling_with_their_text() -> None:
    refusal = pickle.loads(pickle.dumps(beyond("the rank", 9, "rank", 8, "ask for less")))
    assert str(refusal) == "the rank is 9, and this server allows 8 (limits.rank): ask for less"
    assert refusal.category == "user"
