"""Reading what PostgreSQL answers, whatever the connection's own settings are."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta

from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import Loader
from psycopg.postgres import types
from psycopg.pq import Format

from ._json import Loads

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)

REMEMBERED = 100
"""Instants to remember at a time."""

_microseconds = struct.Struct("!q").unpack

Loaders = list[tuple[int, type[Loader]]]


class InstantLoader(Loader):
    """Instants in UTC. Beyond the year 9999, and infinity, they are the last one there is."""

    format = Format.BINARY

    def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
        super().__init__(oid, context)
        # A claim has most of them in many rows, and to make one costs as much as all of a row.
        self._made: dict[bytes, datetime] = {}

    def load(self, data: Buffer) -> datetime:
        key = bytes(data)
        instant = self._made.get(key)
        if instant is None:
            if len(self._made) >= REMEMBERED:
                self._made.clear()
            instant = self._made[key] = _instant(key)
        return instant


def _instant(data: bytes) -> datetime:
    (microseconds,) = _microseconds(data)
    try:
        return EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return EARLIEST if microseconds < 0 else LATEST


def loaders(loads: Loads, codec: str = "utf-8") -> Loaders:
    """The loaders for a client's cursors. `codec` is for texts of no connection."""

    class JsonLoader(Loader):
        format = Format.BINARY

        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._encoding = self.connection.info.encoding if self.connection else codec

        def load(self, data: Buffer) -> object:
            # The first byte is the version of jsonb's binary format.
            return loads(bytes(data[1:]).decode(self._encoding))

    return [(types["jsonb"].oid, JsonLoader), (types["timestamptz"].oid, InstantLoader)]


def text_loader(codec: str) -> type[Loader]:
    """A loader of texts in that encoding, whatever the connection's, for want of one."""

    class TextLoader(Loader):
        format = Format.BINARY

        def load(self, data: Buffer) -> str:
            return bytes(data).decode(codec)

    return TextLoader
