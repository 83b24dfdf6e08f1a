"""Tests: one folder a room, and `cases` for problems from the field. A package, so that spawned processes find it."""
