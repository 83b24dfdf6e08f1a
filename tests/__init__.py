"""Tests: one folder a room, `cases` for problems from the field. A package, so that spawned processes import from it."""
