"""An ONNX graph as a module that trains.

Covers the operators of its table. Another operator is an error that names it.
"""
