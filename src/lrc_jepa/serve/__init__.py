"""A trained run as a policy for others: a websocket that takes frames and gives actions."""

from __future__ import annotations

from lrc_jepa.serve.session import Session

__all__ = ["Session"]
