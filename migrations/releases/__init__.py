"""SQL of each release, and what all upgrades begin and end with."""
