"""Gates runs: which ones are meant, each by itself, many at a time, and the evidence over all of them."""
