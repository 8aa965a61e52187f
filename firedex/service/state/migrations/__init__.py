"""Schema migrations of the state, with Alembic. Knows tables and revisions, nothing of their use.

Each file in ``versions`` is one revision with a function ``upgrade``; to change the schema, add a
file whose ``down_revision`` is the latest revision, and change ``firedex.service.state.tables`` in
the same way. A released revision is never edited. There is no ``env.py``: the service upgrades its
state when it opens it, inside the transaction of the caller.
"""

import logging
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, inspect

from firedex.service.errors import StateError

__all__ = ["REVISIONS", "current_revision", "upgrade"]

log = logging.getLogger("firedex.service")
logging.getLogger("alembic").setLevel(logging.WARNING)  # it logs each step at INFO

REVISIONS = Path(__file__).parent
"""The folder that contains ``versions``."""


def current_revision(connection: Connection) -> str | None:
    """Return the revision of a database; None if it is empty.

    Raises `StateError` if it contains tables that were not created by these migrations.
    """
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is not None:
        return revision
    tables = sorted(set(inspect(connection).get_table_names()) - {"alembic_version"})
    if tables:
        raise StateError(
            f"the database contains tables ({', '.join(tables[:5])}) that were not created by a "
            "released version of the service; give the path of a new file or an empty database"
        )
    return None


def upgrade(connection: Connection, revisions: Path = REVISIONS) -> None:
    """Upgrade a database to the latest revision, or create all tables if it is empty.

    Raises `StateError` if the database has a revision that this release does not know.
    """
    script = ScriptDirectory(str(revisions))
    revision = current_revision(connection)
    try:
        if revision is not None:
            script.get_revision(revision)
    except CommandError as error:
        raise StateError(
            f"the state has schema revision {revision}, which this release does not know "
            f"(its latest revision is {script.get_current_head()}); start the release that wrote "
            "the state, or a newer one"
        ) from error
    pending = list(script.iterate_revisions("head", revision or "base"))
    context = MigrationContext.configure(connection)
    for step in reversed(pending):
        with Operations.context(context):
            step.module.upgrade()
        context.stamp(script, step.revision)
        log.info("state: schema revision %s: %s", step.revision, step.doc)
