"""Keep what was judged in the store, so that it can be shown, compared and gated again without the run."""
