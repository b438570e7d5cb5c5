"""Alembic's revisions, one for each release."""
