"""What does a recorded profile hold, and to what call, phase and module does each kernel belong?

Reads files only: it needs neither torch nor a device, executes nothing of a file, and limits sizes
(`results.text_files`).
"""
