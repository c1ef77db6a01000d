"""Make a diagnosis that can be shared: names and texts masked, numbers kept."""
