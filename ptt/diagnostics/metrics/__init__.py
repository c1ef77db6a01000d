"""All that is known of a metric: its canonical name, its aliases, how it is recorded and which way is worse."""
