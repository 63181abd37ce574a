"""What does a recorded profile hold, and to what does each kernel belong? Free of torch.

Reads files only: it needs neither torch nor a device.
"""
