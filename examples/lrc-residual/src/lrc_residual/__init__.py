"""A system for lrc-jepa: a latent that is moved by a residual MLP, on a path that is kept straight."""
