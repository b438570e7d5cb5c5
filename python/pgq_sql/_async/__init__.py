"""The clients' methods, for asyncio. `make sync` writes `_sync` from here: edit only this."""

from .consume import Consuming
from .control import Controlling
from .look import Looking
from .produce import Producing

__all__ = ["Consuming", "Controlling", "Looking", "Producing"]
