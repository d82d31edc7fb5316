"""The rules that eqsatad simplifies with: one file per theme, rows are values.

See ``README.md`` in this folder for how rows are written and checked.
"""
