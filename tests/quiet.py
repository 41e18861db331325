"""A watcher of runs that tells nobody."""

from __future__ import annotations

from io import StringIO

from ablate.runner.progress import PlainWatcher

QUIET = PlainWatcher(StringIO())
