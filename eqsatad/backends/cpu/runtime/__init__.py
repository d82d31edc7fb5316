"""The CPU at hand and its caches, compiled code, threads, and memory for temporaries."""
