"""Offers the loggers for the numbers of a meter, each with `log(step, values)`: a table, TensorBoard, W&B, MLflow."""

from measure.meter.loggers import CsvLog, Logger, MlflowLog, TensorBoardLog, WandbLog

__all__ = ["CsvLog", "Logger", "MlflowLog", "TensorBoardLog", "WandbLog"]
