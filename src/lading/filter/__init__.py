"""The filter: a SQL condition over headers and message fields, the same in broker, client, command line and Spark."""
