"""Episodes on disk, clips cut from them, and the statistics that normalise their actions."""
