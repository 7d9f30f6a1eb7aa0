"""What TensorBoard's entry point names. TensorBoard doesn't start if an entry point raises, so nothing here can raise."""

from __future__ import annotations

import logging
from typing import Any

from tensorboard.plugins import base_plugin

__all__ = ["Loader"]

_log = logging.getLogger(__name__)


class Loader(base_plugin.TBLoader):  # type: ignore[misc]
    """Makes the plugin, or None where it cannot be made: TensorBoard then starts without the tab.

    Imports nothing that TensorBoard has not imported already, and so neither torch nor the rest of this package.
    """

    def load(self, context: Any) -> Any:
        """The plugin for TensorBoard's ``TBContext``, or None."""
        try:
            from retainprof.tb.plugin import Plugin

            return Plugin(context)
        except Exception as e:  # noqa: BLE001, whatever breaks here must not break TensorBoard
            _log.warning("the retainprof tab is not shown: %s: %s", type(e).__name__, e)
            return None
