"""From a diagnosis to something a person or a machine reads."""
