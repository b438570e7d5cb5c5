"""${message}"""

from alembic import op

from pgq_sql import _releases
from pgq_sql.alembic import execute

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade() -> None:
    for statement in _releases.upgrade(revision):
        execute(op.get_context(), statement)


def downgrade() -> None:
    for statement in _releases.downgrade(revision):
        execute(op.get_context(), statement)
