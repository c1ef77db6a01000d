"""Rules that users write: read from files as data, never run as code, and judged like the built-in ones."""
