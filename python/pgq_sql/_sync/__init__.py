"""The clients' methods, for threads. Written by `make sync` from `_async`: edit there."""

from .consume import Consuming
from .control import Controlling
from .look import Looking
from .produce import Producing

__all__ = ["Consuming", "Controlling", "Looking", "Producing"]
