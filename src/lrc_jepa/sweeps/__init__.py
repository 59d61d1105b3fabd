"""Many pieces of work on runs, each done once: grids, laboratories and studies of variants."""
