"""Linear Road (Arasu et al., VLDB 2004): expressways whose tolls follow from traffic and accidents.

``model`` has the input and what is computed of it, ``cars`` follows each car, ``accidents`` each road, ``topology`` puts
them together, and ``generator`` makes traffic.

    penstock worker penstock.topologies.examples.linear_road.topology:build
"""
