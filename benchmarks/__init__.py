"""`make bench`: speed as ratios, each against a peer or a plain baseline in the same run."""
