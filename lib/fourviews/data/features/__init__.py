"""Features of images from networks that were trained elsewhere: computed once, kept, reduced."""
