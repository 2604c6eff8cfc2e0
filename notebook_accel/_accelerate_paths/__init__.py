"""The peer's import paths, so that moving a project is one search-and-replace.

This folder is part of the package's `__path__`: `notebook_accel.utils` is `utils` here. Nothing is
defined in it, and nothing in it is loaded before it is imported.
"""
