"""What a study can weigh quality against, and what a budget can limit; one file registers one cost or several.

A cost is a ``CostKind`` that the literal ``NAMES`` of its file names; another package declares it under the entry
points ``isthmus.costs``. Reports read titles and units without torch, so files here import torch only to compute.
"""
