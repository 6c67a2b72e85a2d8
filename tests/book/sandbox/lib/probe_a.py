"""A library module that the first lesson imports."""

VALUE = 1.5
