"""An ONNX graph as a module that trains."""
