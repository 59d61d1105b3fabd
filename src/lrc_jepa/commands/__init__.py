"""The subcommands of `lrc`, one file each; every `main` takes arguments and returns its result."""
