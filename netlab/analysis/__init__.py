"""From segments to causes: connections, exchanges, flights, findings with evidence. Pure functions."""

from netlab.analysis.causes import CAUSES
from netlab.analysis.diagnose import Diagnoser, diagnose, stream
from netlab.analysis.options import DEFAULT_OPTIONS, Detail, Options
from netlab.analysis.predict import (
    Prediction,
    Sending,
    WindowState,
    Write,
    predict,
    restart_window,
    train_from_exchange,
)

__all__ = [
    "CAUSES",
    "DEFAULT_OPTIONS",
    "Detail",
    "Diagnoser",
    "Options",
    "Prediction",
    "Sending",
    "WindowState",
    "Write",
    "diagnose",
    "predict",
    "restart_window",
    "stream",
    "train_from_exchange",
]
