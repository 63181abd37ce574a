"""What does a recorded profile hold, and to what does each kernel belong? Free of torch."""
