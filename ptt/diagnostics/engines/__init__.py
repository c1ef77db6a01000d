"""Where the token pass runs."""
