"""What is trained: models, batches, losses, the step. Knows no clock."""
