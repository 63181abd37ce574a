"""Exports the loggers that write a meter's numbers: to a CSV table, TensorBoard, W&B or MLflow.

A `Logger` has `log(step, values)`, where `values` maps names to numbers, and `close()`.
"""

from measure.meter.loggers import CsvLog, Logger, MlflowLog, TensorBoardLog, WandbLog

__all__ = ["CsvLog", "Logger", "MlflowLog", "TensorBoardLog", "WandbLog"]
