"""Steps that lower an energy, and what bounds them."""
