"""Checks of the project's targets, and its measurements: each module is a command."""
