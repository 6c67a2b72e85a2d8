"""Networks whose layers are such steps."""
