"""What ptt costs, side by side with what a user would write instead."""
