"""How often `sweep --against` raises a false alarm, and which slow-downs it finds."""
