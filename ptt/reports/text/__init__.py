"""Finished English: names, numbers, sentences, and foreign text made harmless."""
