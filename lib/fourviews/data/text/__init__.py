"""Texts, and vectors of their words."""
