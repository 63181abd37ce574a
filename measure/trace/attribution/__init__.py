"""Which call, phase and module does each kernel belong to?"""
