"""Estimators for people with arrays: Hourglass networks with scikit-learn's ``fit``, ``predict`` and ``transform``.

``settings`` checks what is given, ``fitting`` holds the network and its training loop, ``estimators`` the three
estimators, ``search`` the search for a shape.
"""

from isthmus.sklearn.estimators import HourglassClassifier, HourglassDenoiser, HourglassRegressor
from isthmus.sklearn.search import ShapeSearchCV

__all__ = ["HourglassClassifier", "HourglassDenoiser", "HourglassRegressor", "ShapeSearchCV"]
