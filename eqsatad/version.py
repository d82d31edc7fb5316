"""The version: the one place it is written, from which the package's metadata is made."""

VERSION = "0.1.0"
