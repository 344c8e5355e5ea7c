"""Estimators for people with arrays: Hourglass networks with scikit-learn's ``fit``, ``predict`` and ``transform``.

``fitting`` has the network, its scales and the loop, ``estimators`` the three estimators, ``search`` the choice of a
shape.
"""

from isthmus.sklearn.estimators import HourglassClassifier, HourglassDenoiser, HourglassRegressor
from isthmus.sklearn.search import ShapeSearchCV

__all__ = ["HourglassClassifier", "HourglassDenoiser", "HourglassRegressor", "ShapeSearchCV"]
