"""Loggers for the numbers of a meter, each with `log(step, values)`: a table, TensorBoard, W&B, MLflow, Prometheus."""

from measure.integrations.loggers import CsvLog, Logger, MlflowLog, PrometheusEndpoint, TensorBoardLog, WandbLog

__all__ = ["CsvLog", "Logger", "MlflowLog", "PrometheusEndpoint", "TensorBoardLog", "WandbLog"]
