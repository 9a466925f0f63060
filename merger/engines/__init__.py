"""The engines that run merge tasks: in this process, or on Spark."""
