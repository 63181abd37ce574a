"""The law of the batch: its constant named by module or operator, and the counter that breaks it with the operator."""
