"""Pictures with a class each."""
