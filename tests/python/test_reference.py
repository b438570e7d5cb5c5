"""The SQL reference says what the schema says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from build_reference import MEND, PAGE, render

if TYPE_CHECKING:
    from servers import Connection


def test_reference_is_fresh(conn: Connection) -> None:
    assert PAGE.read_text() == render(conn), f"the reference is stale; mend: {MEND}"
