"""Speed on this machine, next to what the machine could do.

Decides what is timed and how a figure is related to the machine's limits. Never serves or trains.
In: a config. Out: tokens per second, fractions of peak, a table.
"""
