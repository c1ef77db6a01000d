"""The Parquet store: the only code that writes or opens tables."""
