"""Jobs whose truth is known, run through the analysis: simulated ones and those of the testbed."""
