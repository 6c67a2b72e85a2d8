"""Files as they come: caches, checksums, downloads, archives, streams."""
