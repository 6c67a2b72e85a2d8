"""Energies of tokens, with their majorisers."""
