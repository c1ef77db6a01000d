"""Set runs side by side: what differs, from which step on, by how much, and how closely that is known."""
