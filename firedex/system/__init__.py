"""Tools that every process uses: child processes, atomic file writes and option types."""
