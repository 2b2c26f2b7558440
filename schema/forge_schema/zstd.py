"""Zstandard, by the module that Python's standard library has since 3.14."""

import sys
from collections.abc import Mapping

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CompressionParameter = zstd.CompressionParameter
ZstdDecompressor = zstd.ZstdDecompressor
ZstdError = zstd.ZstdError
ZstdFile = zstd.ZstdFile
compress = zstd.compress
decompress = zstd.decompress
CHECKED: Mapping[int, int] = {
    CompressionParameter.compression_level: 3,
    CompressionParameter.checksum_flag: 1,
}


def frame(data: bytes | bytearray) -> bytes:
    """Return the data as one frame, with a checksum."""
    return compress(data, options=CHECKED)


def decompressor(window_bytes: int) -> ZstdDecompressor:
    """Return what unpacks one frame, in no more memory than this beside what it returns.

    Its `decompress` raises ZstdError if the frame is damaged, or needs more.
    """
    window_log = window_bytes.bit_length() - 1
    return ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})


def first_bytes(packed: bytes, most: int, window_bytes: int) -> bytes:
    """Return the first `most` bytes of a frame, whatever size it declares; fewer of one cut short.

    Raises:
        ZstdError: it is damaged, or needs a larger window.
    """
    return decompressor(window_bytes).decompress(packed, max_length=most)
