"""The parts that every batch engine needs to run a topology over a range of the log: plans, one order of each task's
records, journals, the task itself over sorted rows, and the result that is published. An engine brings the log's
records, one sort by key, and a place to run functions on Arrow batches; ``streams/spark/`` is one."""
