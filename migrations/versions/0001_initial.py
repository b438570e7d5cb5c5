"""The first release."""

from alembic import op

from pgq_sql import _releases
from pgq_sql.alembic import execute

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    for statement in _releases.upgrade(revision):
        execute(op.get_context(), statement)


def downgrade() -> None:
    for statement in _releases.downgrade(revision):
        execute(op.get_context(), statement)
