"""`accelerate.commands`."""
