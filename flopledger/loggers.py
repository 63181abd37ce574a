"""Exports the loggers for the numbers of a meter: a CSV table, TensorBoard, W&B, MLflow.

Each has `log(step, values)`, which takes the values of a step by name, and `close()`.
"""

from measure.meter.loggers import CsvLog, Logger, MlflowLog, TensorBoardLog, WandbLog

__all__ = ["CsvLog", "Logger", "MlflowLog", "TensorBoardLog", "WandbLog"]
