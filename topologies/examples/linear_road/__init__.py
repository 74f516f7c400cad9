"""Linear Road (Arasu et al., VLDB 2004): expressways whose tolls depend on traffic and accidents.

``model`` has the schema, ``cars`` follows each car, ``accidents`` each road, ``topology`` combines them, and
``generator`` makes traffic.

    penstock worker penstock.topologies.examples.linear_road.topology:build
"""
