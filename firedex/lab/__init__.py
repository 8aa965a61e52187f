"""Research tools: benchmarks, reproductions of papers and recorded measurements. Not for sites."""
