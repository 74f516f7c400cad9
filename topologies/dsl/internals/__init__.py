"""How the methods of the handles add operators: functions by theme, which take flows (and tables' rows) and give them."""
