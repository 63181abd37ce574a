"""How does a step run without values, memory or device?

Shapes, dtypes and storages without values. A model whose operations depend on values cannot run this way.
"""
