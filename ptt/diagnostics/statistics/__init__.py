"""Pure functions from rows to small tables; they know no files, no limits and no words."""
