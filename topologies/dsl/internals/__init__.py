"""How the methods of the handles add operators: functions by theme that take and return flows (and tables)."""
