"""Speed, measured on this machine as ratios to named rivals in one interleaved run."""
