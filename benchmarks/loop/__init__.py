"""Made runs of the whole training loop, healthy and with one thing broken, in the files frameworks write."""
