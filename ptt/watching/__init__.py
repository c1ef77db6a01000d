"""Follow a run that is being written: read what is new, test each step once, tell what was found, and know its end."""
