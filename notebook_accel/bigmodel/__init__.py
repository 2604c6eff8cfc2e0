"""Models larger than a device, or than memory: plan where their weights go, load them there, run them."""
