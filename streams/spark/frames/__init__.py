"""The log and the state as DataFrames: topics, changelogs and stores with typed columns, read and written."""
