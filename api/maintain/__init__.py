"""Keep a table clustered: what a version looks like to metrics and policies, and the recluster loop."""
