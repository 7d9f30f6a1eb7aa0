"""The TensorBoard tab: loader, runs below the log directory, HTTP routes, and the front end in ``static/``."""
