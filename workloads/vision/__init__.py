"""torchvision's models and their data."""
