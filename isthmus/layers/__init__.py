"""Building blocks of several models; ``residual.py`` joins the branches of a network to its stream."""
