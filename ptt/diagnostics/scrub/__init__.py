"""Takes secrets, and names of people and machines, out of the texts of a run before anything keeps or shows them."""
