"""Modules as splines: exact forward passes, degrees, pieces along a line, smooth versions."""
