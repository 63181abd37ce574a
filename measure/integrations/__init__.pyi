from .loggers import CsvLog, Logger, MlflowLog, PrometheusEndpoint, TensorBoardLog, WandbLog

__all__ = [
    "CsvLog",
    "Logger",
    "MlflowLog",
    "PrometheusEndpoint",
    "TensorBoardLog",
    "WandbLog",
]
