"""A library module that the second lesson imports."""

VALUE = 2.5
