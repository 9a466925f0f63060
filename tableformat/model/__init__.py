"""What a table is: schema, cluster key, options, snapshots, segments, blocks. Values only, no I/O."""
