"""What parsers share: lines, JSON documents, SQLite, zip members, tensors, and the rows they build."""
