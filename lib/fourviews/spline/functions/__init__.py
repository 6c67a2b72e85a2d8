"""Splines as functions: expressions, normal forms, partitions by signs; and what rationals need."""
