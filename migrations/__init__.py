"""The schema's migrations; in an installed package `pgq_sql._migrations`."""
