"""Scenes of objects and the relations between them."""
