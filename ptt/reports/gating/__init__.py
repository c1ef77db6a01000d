"""What a gate says, for people and for machines that read its outcome."""
